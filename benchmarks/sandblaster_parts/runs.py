"""Runs commands, and writes the nets and solvers that they read."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import launcher
from nets.prototxt import prototxt

ROOT = Path(__file__).resolve().parent.parent.parent
MPIRUN = launcher.MPIRUN


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; a failure ends the benchmark with the end of what it said."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=1800, env=os.environ | variables)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-800:]}")
    return done


def write_net(folder: Path, data: str, name: str, batch: int) -> None:
    """A benchmark's net over the example's databases, as ``net.prototxt``."""
    layers = "".join(
        f'layer {{ name: "{phase}" type: "Data" top: "data" top: "label" include {{ phase: {phase.upper()} }} '
        f'transform_param {{ scale: 0.00390625 }} data_param {{ source: "{data}/{phase}_lmdb" batch_size: {size} '
        "backend: LMDB } }\n" for phase, size in (("train", batch), ("test", 100)))
    body = prototxt(name, batch).split("\n", 2)[2]
    last = re.findall(r'bottom: "(\S+)" bottom: "label"', body)[-1]
    text = f"{layers}{body}\n" + (f'layer {{ name: "accuracy" type: "Accuracy" bottom: "{last}" bottom: "label" '
                                  'top: "accuracy" include { phase: TEST } }')
    (folder / "net.prototxt").write_text(text)


def solver_text(folder: Path, rule: str, n_iterations: int, test_interval: int) -> str:
    """A solver for that net."""
    return (f'net: "{folder}/net.prototxt" {rule} lr_policy: "fixed" weight_decay: 0.0005 random_seed: 5 '
            f'max_iter: {n_iterations} display: 0 test_iter: 10 test_interval: {test_interval} '
            f'snapshot_after_train: false snapshot_prefix: "{folder}/run"\n')
