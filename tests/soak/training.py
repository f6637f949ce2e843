"""A training run in a folder of its own, which may be disturbed and goes on from its last snapshot."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from scaffe.data.convert.writers import write_lmdb
from scaffe.data.records.datum import encode_image
from tests.scaffe.runs import command, write_solver

N_ITERATIONS, SNAPSHOT_EVERY = 400, 25
FULL_AT_BYTES = 300_000  # a snapshot's weights have 900 kB
NET = """
layer { name: "d" type: "Data" top: "data" top: "label" data_param { source: "%s" batch_size: 66 backend: LMDB }
  transform_param { scale: 0.004 mirror: true crop_size: 24 } }
layer { name: "a" type: "InnerProduct" bottom: "data" top: "a" inner_product_param { num_output: 384
  weight_filler { type: "xavier" } } }
layer { name: "r" type: "ReLU" bottom: "a" top: "a" }
layer { name: "o" type: "Dropout" bottom: "a" top: "a" }
layer { name: "b" type: "InnerProduct" bottom: "a" top: "b" inner_product_param { num_output: 10
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "b" bottom: "label" top: "loss" }
"""


def make_database(home: Path) -> Path:
    """1,000 random images with labels."""
    chance = np.random.default_rng(1)
    images = chance.integers(0, 256, (1000, 1, 28, 28), np.uint8)
    write_lmdb(home / "lmdb", ((b"%08d" % i, encode_image(image, i % 10)) for i, image in enumerate(images)))
    return home / "lmdb"


class Training:
    """One run.

    Args:
        home: where its folder is made.
        database: what it reads.
        n_ranks: how many ranks; the same each time, so that sums have one order.
    """

    def __init__(self, home: Path, database: Path, n_ranks: int) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=home))
        self._n_ranks = n_ranks
        write_solver(self.folder, NET % database, test_iter=None, test_interval=0, max_iter=N_ITERATIONS,
                     snapshot=SNAPSHOT_EVERY, snapshot_after_train=1, display=1)

    @contextmanager
    def started(self, kind: str = "") -> Iterator[subprocess.Popen[str]]:
        """The run, going on from its newest snapshot; ``disk`` has too little room for another."""
        train = ["train", "-solver", "solver.prototxt", "-threads", "1", "-resume", "auto", "-sighup_effect", "none"]
        log = (self.folder / "log").open("a")
        process = subprocess.Popen(
            command(*train, n_ranks=self._n_ranks), cwd=self.folder, text=True, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE if kind == "pipe" else log,
            preexec_fn=_fill_disk if kind == "disk" else None)  # noqa: PLW1509 - no threads here
        try:
            yield process
        finally:
            log.close()
            if process.stderr:
                process.stderr.close()

    def wait(self, process: subprocess.Popen[str], seconds: float) -> None:
        """Wait for a disturbed run to end. Raises AssertionError where it hangs."""
        end = time.monotonic() + seconds
        while process.poll() is None or _session(process.pid):  # ranks may outlive a killed mpirun for a moment
            if time.monotonic() > end:
                left = _session(process.pid)
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                what = "hangs" if process.poll() is None else "mpirun is gone, ranks live on"
                raise AssertionError(f"{what}: processes {left}")
            time.sleep(0.05)

    def finish(self, seconds: float) -> bytes:
        """Let it run to its end. Returns the weights; raises AssertionError where it fails."""
        with self.started() as process:
            self.wait(process, seconds)
        text = (self.folder / "log").read_text(errors="replace")
        if process.returncode or "Traceback" in text:
            raise AssertionError(f"exit code {process.returncode}: {text[-1500:]}")
        return (self.folder / f"run_iter_{N_ITERATIONS}.caffemodel").read_bytes()

    def leftovers(self) -> str:
        """What a clean run would not leave."""
        hidden = [path.name for path in self.folder.glob(".*")]
        return f"left behind: {', '.join(hidden)}" if hidden else ""


def _session(leader: int) -> list[int]:
    """The processes that a run started, as far as they live."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found.append(int(stat.parent.name))
    return found


def _fill_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_AT_BYTES, resource.RLIM_INFINITY))
