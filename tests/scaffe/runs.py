"""Whole runs of the command line on a small LMDB: what a user types, in processes of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.mpirun import mpirun

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples" / "fashion_mnist"

NET = (EXAMPLE / "lenet_train_test.prototxt").read_text()
SOLVER = """net: "net.prototxt" test_iter: 3 test_interval: 20 base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005
lr_policy: "inv" gamma: 0.0001 power: 0.75 display: 1 max_iter: 50 snapshot_prefix: "run" random_seed: 1701
snapshot_after_train: false
"""


def command(*args: str, n_ranks: int = 1) -> list[str]:
    """The command line of a run."""
    launcher = mpirun(n_ranks) if n_ranks > 1 else []
    return [*launcher, sys.executable, "-m", "scaffe", *args]


def run(folder: Path, *args: str, n_ranks: int = 1, timeout: float = 120) -> subprocess.CompletedProcess:
    """Run a command in a folder to its end; one compute thread a rank, so that bits can be compared."""
    threads = ["-threads", "1"] if args[0] == "train" else []
    return subprocess.run(command(*args, *threads, n_ranks=n_ranks), cwd=folder, capture_output=True, text=True,
                          timeout=timeout)


def write_solver(folder: Path, net: str = NET, **changes: object) -> Path:
    """A solver and its net in a folder; ``changes`` replace or add solver fields, None takes one out."""
    text = SOLVER
    for name, value in changes.items():
        shown = f'"{value}"' if isinstance(value, str) and not value.isupper() else value
        text = re.sub(rf'\b{name}: ("[^"]*"|\S+)', "", text) + (f"{name}: {shown}\n" if value is not None else "")
    (folder / "net.prototxt").write_text(net)
    (folder / "solver.prototxt").write_text(text)
    return folder / "solver.prototxt"


def losses(log: str) -> dict[int, float]:
    """Iteration → the loss logged for it."""
    return {int(i): float(v) for i, v in re.findall(r"Iteration (\d+) \(.*\), loss = (\S+)", log)}
