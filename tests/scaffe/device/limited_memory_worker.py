"""One rank of the test of limited memory of a device on several: each strategy without a limit and within one;
the first also saved half-way and resumed, and with test nets.

    mpirun -np N python tests/scaffe/device/limited_memory_worker.py FOLDER STRATEGY...
    mpirun -np N python tests/scaffe/device/limited_memory_worker.py FOLDER replicas

CuPy is the pretend one, working as late as CUDA's rules allow; with SCAFFE_TEST_GPU the card's.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook
from scaffe.layers.kernels import extents
from scaffe.layers.kernels.cuda import cublas
from scaffe.memory.plan import layout, search
from scaffe.memory.problem import layer_groups, tensors
from scaffe.memory.problem import layer_groups as runs
from tests import pretend
from tests.scaffe.training import limited_memory_worker as worker

REAL = bool(os.environ.get("SCAFFE_TEST_GPU"))
BUCKETS = {"sc-b": 0, "sc-ob": 500, "sc-obr": 500, "sc-rs": 600, "ssp": 500, "downpour": 500}
KINDS = {"ssp": {"parameters"}}  # the others have histories, or what accrues, too
PUSHED = {"downpour": worker.PUSHED}
TESTS = "test_iter: 3 test_interval: 2 test_initialization: false"
BOTH = {"history", "parameters"}
REPLICAS = (({}, BOTH, ""), ({"warm_start": 2}, BOTH, ""), ({"n_fetch": 1, "n_push": 1, "servers": 1}, BOTH, ""),
            ({}, {"history"}, "iter_size: 2"))
"""Of downpour: flags, the kinds of arrays that leave, what is merged into the solver."""


def main() -> None:
    """Train in every way, and write whether the bits are the same."""
    tensors.LEAST_BYTES, runs.LEAST_BYTES, layer_groups.CHUNK_BYTES, extents.BLOCK_BYTES = 1, 5000, 60_000, 60_000
    search.MOST_DRAWN, search.MOST_THRESHOLD_DRAWS, layout.MOST_TRIALS = 60, 60, 40  # any plan gives the same bits
    if not REAL:
        cublas.WORKSPACE_BYTES = 1 << 16  # of the other arrays' order
    worker.DEVICE["gpu"] = "all"
    communicator, folder = Communicator.world(), Path(sys.argv[1])
    install_excepthook(communicator)
    log.silence(True)
    with contextlib.nullcontext() if REAL else pretend.deferring():
        results = replicas(communicator, folder) if sys.argv[2:] == ["replicas"] else every(communicator, folder)
    if communicator.rank == 0:
        (folder / "results.json").write_text(json.dumps(results))


def every(communicator: Communicator, folder: Path) -> list[list[bool]]:
    """What came out under every strategy of the command line, by rank."""
    runs = [(name, "auto", BUCKETS[name]) for name in sys.argv[2:]]
    results = [worker.compared(communicator, folder, run, PUSHED.get(run[0], ""),
                               KINDS.get(run[0], BOTH)) for run in runs]
    return [*results, resumed(communicator, folder, runs[0]), tested(communicator, folder, runs[0])]


def resumed(communicator: Communicator, folder: Path, run: tuple[str, str, int]) -> list[bool]:
    """Whether a run that was saved and resumed has the same bits within a limit."""
    expected = worker.resumed(communicator, folder, run)
    limited = worker.resumed(communicator, folder, run, memory=worker.least(communicator, folder, run))
    return communicator.allgather_objects(expected == limited)


def tested(communicator: Communicator, folder: Path, run: tuple[str, str, int]) -> list[bool]:
    """The same of a run with test nets, and of what they find. Nothing has accrued when ranks settle."""
    expected, seen = worker.tested(communicator, folder, run, TESTS, n_push=1)
    least = worker.least(communicator, folder, run, TESTS)
    limited = worker.tested(communicator, folder, run, TESTS, n_push=1, memory=least)
    return communicator.allgather_objects((expected, seen) == limited and len(seen) == 2)


def replicas(communicator: Communicator, folder: Path) -> list[list[bool]]:
    """What came out under downpour, by rank: every ``REPLICAS``, resumed, and with test nets."""
    run = ("downpour", "auto", BUCKETS["downpour"])
    results = [worker.compared(communicator, folder, run, worker.PUSHED + text, kinds, **flags)
               for flags, kinds, text in REPLICAS]
    return [*results, resumed(communicator, folder, run), tested(communicator, folder, run)]


if __name__ == "__main__":
    if not REAL:
        sys.modules.update(pretend.make())
        pretend.pool.Settings.shared = os.environ.get("SCAFFE_CUDA_IPC") != "0"
    main()
