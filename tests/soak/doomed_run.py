"""One training of which ranks are killed or stopped, and what came of it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mpirun import mpirun
from tests.scaffe.runs import write_solver

N_ITERATIONS, HANGS_AFTER_SECONDS, LOOK_SECONDS = 300, 240, 0.003
UNTIL_REPLACED = 5
"""Times as many iterations: those that are started for lost ranks come while the others train."""
GO_ON, NOBODY_LEFT = r"\d go on", "all workers are lost"
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


class DoomedRun:
    """A training with ``-on_rank_loss``, read line by line.

    Args:
        home: where the databases are.
        strategy: how it trains, with its flags: ``ssp -servers 1``.
        launcher: mpirun and its options; or the number of ranks.
        seed: the solver's.
        on_loss: the value of ``-on_rank_loss``.
        module: what runs a command of scaffe's.
        variables: of the environment, beside this process's.
    """

    def __init__(self, home: Path, strategy: str, launcher: int | list[str], seed: int, on_loss: str = "shrink",
                 module: str = "scaffe", **variables: str) -> None:
        self._replaces = on_loss == "replace"
        self._folder = Path(tempfile.mkdtemp(dir=home))
        write_solver(self._folder, NET.format(home=home), test_iter=10, test_interval=30,
                     max_iter=N_ITERATIONS * (UNTIL_REPLACED if self._replaces else 1), snapshot=20,
                     snapshot_after_train=1, display=1, random_seed=seed)
        if isinstance(launcher, int):
            program, *options = mpirun(launcher)
            launcher = [program, "--with-ft", "ulfm", *options]
        command = [*launcher, sys.executable, "-m", module, "train", "-solver", "solver.prototxt",
                   "-threads", "1", "-strategy", *strategy.split(), "-on_rank_loss", on_loss]
        ours = {"PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent), "PYTHONFAULTHANDLER": "1"}
        self.process = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, errors="replace", env=os.environ | ours | variables)
        self.lines: list[tuple[float, str]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append((time.monotonic(), line))

    def text(self) -> str:
        """All that it has said."""
        return "".join(line for _, line in list(self.lines))

    def stamped(self, died: Sequence[float]) -> str:
        """All that it has said, with seconds, and when ranks died."""
        both = sorted([*self.lines, *((when, "--- a rank dies\n") for when in died)])
        return "".join(f"{when - both[0][0]:8.3f} {line}" for when, line in both)

    def times_of(self, pattern: str) -> list[float]:
        """When lines came in which a pattern is found."""
        return [when for when, line in list(self.lines) if re.search(pattern, line)]

    def wait_for(self, pattern: str, seconds: float, n_times: int = 1) -> bool:
        """Whether such a line comes, so many times in all, before the run ends."""
        until = time.monotonic() + seconds
        while len(self.times_of(pattern)) < n_times and not self.is_over() and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        return len(self.times_of(pattern)) >= n_times

    def is_over(self) -> bool:
        """Whether nothing is left to disturb."""
        return self.process.poll() is not None or bool(self.times_of("Optimization Done"))

    def alive(self) -> list[int]:
        """The processes of its ranks, by their ranks as they were started; those that were spawned come last."""
        pids = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cwd") if _leads_to(path, self._folder)]
        return sorted((pid for pid in pids if _runs(pid) and _variable(pid, "OMPI_COMM_WORLD_RANK")),
                      key=lambda pid: (_namespace(pid), int(_variable(pid, "OMPI_COMM_WORLD_RANK") or 0)))

    def ended(self) -> str:
        """Waits for the end; what went wrong, or nothing."""
        try:
            code = self.process.wait(HANGS_AFTER_SECONDS)
        except subprocess.TimeoutExpired:
            self._end()
            return f"hangs: {self.text()[-12000:]}"
        self._thread.join(10)
        if NOBODY_LEFT in self.text():
            return ""
        expected = (0, 128 + signal.SIGKILL) if self._replaces else (0,)  # the latter: one that had come in was killed
        if code not in expected or not self.times_of("Optimization Done"):
            return f"exit code {code}: {self.text()[-4000:]}"
        return "a part of a file is left" if list(self._folder.glob(".*.part")) else ""

    def _end(self) -> None:
        """Every rank prints where its threads are; then all are killed."""
        for number in (signal.SIGCONT, signal.SIGABRT, signal.SIGKILL):
            for pid in (*self.alive(), *([self.process.pid] * (number is signal.SIGKILL))):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(1)

    def accuracies(self) -> list[float]:
        """That of the last test; none where nobody was left who could train to the end."""
        found = [re.search(r"accuracy = (\S+)", line) for _, line in self.lines]
        return [] if NOBODY_LEFT in self.text() else [float(match[1]) for match in found if match][-1:]


def _leads_to(path: Path, folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.samefile(folder)
    return False


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


def _variable(pid: int, name: str) -> str:
    with contextlib.suppress(OSError):
        for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if word.startswith(name.encode() + b"="):
                return word.split(b"=", 1)[1].decode()
    return ""


def _namespace(pid: int) -> int:
    """The number of the start, 1 for mpirun's own."""
    return int(_variable(pid, "PMIX_NAMESPACE").rpartition("@")[2] or 0)
