"""Training runs with ``-readers auto``, the default, beside 1 and 2 readers by hand."""

from __future__ import annotations

import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from statistics import median

from figures import Figures, Sample

ROOT = Path(__file__).resolve().parents[2]
DATA = """layer {{ name: "data" type: "Data" top: "data" top: "label"
  transform_param {{ {transform} }} data_param {{ source: "{source}" backend: LMDB batch_size: {batch} }} }}
"""
POOLED = """layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: AVE kernel_size: 32
  stride: 32 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 100
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
CONVOLVED = """layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" convolution_param { num_output: 48
  kernel_size: 11 stride: 4 weight_filler { type: "gaussian" std: 0.01 } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool" type: "Pooling" bottom: "conv1" top: "pool" pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool" top: "conv2" convolution_param { num_output: 64 kernel_size: 3
  weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv2" top: "ip" inner_product_param { num_output: 100
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
CROPPED = "crop_size: 227 mirror: true mean_value: 104"
NETS = {"JPEG, tiny net": ("jpeg", POOLED, 400), "raw, tiny net": ("raw", POOLED, 2400),
        "JPEG, two convolutions": ("jpeg", CONVOLVED, 40), "raw, two convolutions": ("raw", CONVOLVED, 40)}


def run(folder: Path, args: Namespace) -> None:
    """Images a second of each, and ``auto`` beside the best number by hand: the median of the rounds' ratios."""
    columns = ("data, net", "auto, images/s", "1 reader", "2 readers", "x the best")
    note = f"Medians of {args.rounds} rounds, the second half of each run."
    with Figures("readers-flags", columns, note, args.keep) as table:
        for name, (kind, net, n_iterations) in NETS.items():
            data = DATA.format(transform=CROPPED, source=folder / kind, batch=64)
            (folder / "net.prototxt").write_text(data + net)
            write_solver(folder, n_iterations)
            rates: dict[str, list[float]] = {"auto": [], "1": [], "2": []}
            for _ in range(args.rounds):
                for readers, found in rates.items():
                    found.append(rate(folder / "solver.prototxt", n_iterations, 64, "-readers", readers))
            best = max(("1", "2"), key=lambda readers: median(rates[readers]))
            ratio = median(a / b for a, b in zip(rates["auto"], rates[best], strict=True))
            table.add(name, *(Sample(rates[readers]) for readers in rates), ratio)


def write_solver(folder: Path, n_iterations: int) -> None:
    """A solver that says how far it is at the middle and at the end."""
    (folder / "solver.prototxt").write_text(
        f'net: "{folder}/net.prototxt" base_lr: 1e-6 lr_policy: "fixed" max_iter: {n_iterations} display: '
        f'{n_iterations // 2} snapshot_after_train: false random_seed: 1')


def rate(solver: Path, n_iterations: int, batch: int, *flags: str) -> float:
    """Images a second in the second half of a run, from its log."""
    command = [sys.executable, "-m", "scaffe", "train", "-solver", str(solver), *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-400:])
    for line in done.stderr.splitlines():
        if "reads with" in line or "-decode gpu:" in line:
            print("  " + line.partition("] ")[2])
    times = [_seconds(line) for line in done.stderr.splitlines() if re.search(r"Iteration \d+[ ,(].*loss", line)]
    return batch * (n_iterations // 2) / (times[-1] - times[-2])


def _seconds(line: str) -> float:
    """The time of day of a line of the log."""
    hours, minutes, seconds = line.split()[1].split(":")
    return 3600 * int(hours) + 60 * int(minutes) + float(seconds)
