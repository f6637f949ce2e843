"""Ranks are killed at random, and training goes on: python -m tests.soak.losses [--kills 50] [--ranks 2,4,8] [...].

A line for each strategy and number of ranks: kills, seconds from each to the line that says how many go on, the
accuracy at the end beside those of undisturbed runs with other seeds, and what went wrong. `make soak` does a few.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from scaffe.data.convert.mnist import convert_mnist
from tests.mpirun import mpirun
from tests.scaffe.runs import EXAMPLE, write_solver
from tests.soak.luck import ranks as ranks_of

STRATEGIES = ("sc-b", "sc-ob", "sc-obr", "sc-rs", "ssp", "downpour")
N_ITERATIONS, HANGS_AFTER_SECONDS = 150, 240
TOGETHER = 0.3
"""How often the next kill comes at once: while the first one is noticed, or in the recovery."""
NET = """
layer {{ name: "d" type: "Data" top: "data" top: "label" include {{ phase: TRAIN }}
  transform_param {{ scale: 0.00390625 }} data_param {{ source: "{home}/train" batch_size: 48 backend: LMDB }} }}
layer {{ name: "d" type: "Data" top: "data" top: "label" include {{ phase: TEST }}
  transform_param {{ scale: 0.00390625 }} data_param {{ source: "{home}/test" batch_size: 100 backend: LMDB }} }}
layer {{ name: "a" type: "InnerProduct" bottom: "data" top: "a" inner_product_param {{ num_output: 128
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "r" type: "ReLU" bottom: "a" top: "a" }}
layer {{ name: "b" type: "InnerProduct" bottom: "a" top: "b" inner_product_param {{ num_output: 10
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "b" bottom: "label" top: "loss" }}
layer {{ name: "accuracy" type: "Accuracy" bottom: "b" bottom: "label" top: "accuracy" include {{ phase: TEST }} }}
"""


@dataclass
class Outcome:
    """Of one run or, added up, of several.

    Attributes:
        killed: ranks killed while it trained.
        seconds: from a kill to the line that says how many ranks go on; one for each recovery.
        accuracies: at the end.
        wrong: what went wrong.
    """

    killed: int = 0
    seconds: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Counts another run."""
        self.killed += other.killed
        self.seconds += other.seconds
        self.accuracies += other.accuracies
        self.wrong += other.wrong


def make_home(home: Path) -> Path:
    """The databases that all runs read."""
    for stem, name in (("train", "train"), ("t10k", "test")):
        if not (home / name).exists():
            convert_mnist(str(EXAMPLE / f"{stem}-images-idx3-ubyte.gz"), str(EXAMPLE / f"{stem}-labels-idx1-ubyte.gz"),
                          str(home / name), False)
    return home


class Run:
    """One training, read line by line."""

    def __init__(self, home: Path, strategy: str, n_ranks: int, seed: int) -> None:
        self._folder = Path(tempfile.mkdtemp(dir=home))
        write_solver(self._folder, NET.format(home=home), test_iter=10, test_interval=30, max_iter=N_ITERATIONS,
                     snapshot=20, snapshot_after_train=1, display=1, random_seed=seed)
        launcher = mpirun(n_ranks)
        launcher[1:1] = ["--with-ft", "ulfm"]
        command = [*launcher, sys.executable, "-m", "scaffe", "train", "-solver", "solver.prototxt", "-threads", "1",
                   "-strategy", strategy, "-on_rank_loss", "shrink"]
        self.process = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, errors="replace")
        self.lines: list[tuple[float, str]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append((time.monotonic(), line))

    def times_of(self, pattern: str) -> list[float]:
        """When lines came in which a pattern is found."""
        return [when for when, line in list(self.lines) if re.search(pattern, line)]

    def wait_for(self, pattern: str, seconds: float) -> bool:
        """Whether such a line comes before the run ends."""
        until = time.monotonic() + seconds
        while not self.times_of(pattern) and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        return bool(self.times_of(pattern))

    def ended(self) -> str:
        """Waits for the end; what went wrong, or nothing."""
        try:
            code = self.process.wait(HANGS_AFTER_SECONDS)
        except subprocess.TimeoutExpired:
            for pid in (*ranks_of(self.process), self.process.pid):
                os.kill(pid, signal.SIGKILL)
            return "hangs"
        self._thread.join(10)
        if code or not self.times_of("Optimization Done"):
            return f"exit code {code}: {''.join(line for _, line in self.lines)[-1500:]}"
        return "a part of a file is left" if list(self._folder.glob(".*.part")) else ""

    def accuracy(self) -> float:
        """Of the last test."""
        found = [re.search(r"accuracy = (\S+)", line) for _, line in self.lines]
        return [float(match[1]) for match in found if match][-1]


def disturbed(home: Path, strategy: str, n_ranks: int, chance: random.Random, usual_seconds: float = 3.0) -> Outcome:
    """One run in which one rank or more are killed, at moments that chance chooses; one at least is left."""
    run, outcome, kills = Run(home, strategy, n_ranks, 1701), Outcome(), list[float]()
    run.wait_for("Training on", HANGS_AFTER_SECONDS)
    delay = chance.uniform(0, usual_seconds)
    for _ in range(chance.randint(1, n_ranks - 1)):
        time.sleep(delay)
        delay = chance.uniform(0, 0.3) if chance.random() < TOGETHER else chance.uniform(0, usual_seconds)
        alive = [pid for pid in ranks_of(run.process) if pid != run.process.pid]
        if run.process.poll() is not None or len(alive) < 2 or run.times_of("Optimization Done"):
            break
        os.kill(chance.choice(alive), signal.SIGKILL)
        kills.append(time.monotonic())
    if said := run.ended():
        outcome.wrong.append(f"{strategy} on {n_ranks} ranks, killed {len(kills)}: {said}")
        return outcome
    outcome.killed, outcome.accuracies = len(kills), [run.accuracy()]
    for when in run.times_of(r"\d go on"):
        outcome.seconds.append(when - max((kill for kill in kills if kill < when), default=when))
    return outcome


def undisturbed(home: Path, strategy: str, n_ranks: int, n_runs: int) -> list[float]:
    """The accuracies of runs with other seeds that nobody disturbs."""
    found = []
    for seed in range(n_runs):
        run = Run(home, strategy, n_ranks, seed)
        if said := run.ended():
            raise RuntimeError(f"an undisturbed run: {said}")
        found.append(run.accuracy())
    return found


def main() -> int:
    """Measures; returns 1 where anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="a strategy and number of ranks")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--seeds", type=int, default=5, help="undisturbed runs to compare with")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    chance, is_right = random.Random(options.seed), True
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home = make_home(Path(name))
        for strategy in options.strategies.split(","):
            for n_ranks in map(int, options.ranks.split(",")):
                others = undisturbed(home, strategy, n_ranks, options.seeds)
                total = Outcome()
                while total.killed < options.kills and len(total.wrong) < 3:
                    total.add(disturbed(home, strategy, n_ranks, chance))
                print(_line(strategy, n_ranks, total, others), *total.wrong, sep="\n", flush=True)
                is_right &= not total.wrong
    return 0 if is_right else 1


def _line(strategy: str, n_ranks: int, total: Outcome, others: list[float]) -> str:
    seconds, found = sorted(total.seconds) or [0.0], total.accuracies or [0.0]
    return (f"{strategy:7} {n_ranks} ranks: {total.killed} kills in {len(total.accuracies)} runs, {len(seconds)} "
            f"recoveries of {statistics.median(seconds):.2f} s (longest {seconds[-1]:.2f}), "
            f"accuracy {min(found):.4f} to {max(found):.4f}, undisturbed {min(others, default=0):.4f} to "
            f"{max(others, default=0):.4f}, {len(total.wrong)} went wrong")


if __name__ == "__main__":
    sys.exit(main())
