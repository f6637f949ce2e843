"""One rank of the test of limited memory of a device on several: each strategy without a limit and within one;
the first also saved half-way and resumed.

    mpirun -np N python tests/scaffe/device/limited_memory_worker.py FOLDER STRATEGY...

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
from scaffe.layers.kernels.cuda import cublas
from scaffe.nets.memory import parts, state
from tests import pretend
from tests.scaffe.training import limited_memory_worker as worker

REAL = bool(os.environ.get("SCAFFE_TEST_GPU"))
BUCKETS = {"sc-b": 0, "sc-ob": 500, "sc-obr": 500, "sc-rs": 600, "ssp": 500}

TESTS = "test_iter: 3 test_interval: 2 test_initialization: false"


def main() -> None:
    """Train in every way, and write whether the bits are the same."""
    parts.LEAST_BYTES, state.LEAST_BYTES = 1, 5000
    if not REAL:
        cublas.WORKSPACE_BYTES = 1 << 16  # of the other arrays' order
    worker.DEVICE["gpu"] = "all"
    communicator, folder = Communicator.world(), Path(sys.argv[1])
    install_excepthook(communicator)
    log.silence(True)
    with contextlib.nullcontext() if REAL else pretend.deferring():
        runs = [(name, "auto", BUCKETS[name]) for name in sys.argv[2:]]
        results = [worker.compared(communicator, folder, run, "", {"parameters"} if run[0] == "ssp" else
                                   {"history", "parameters"}) for run in runs]
        expected = worker.resumed(communicator, folder, runs[0])
        limited = worker.resumed(communicator, folder, runs[0], memory=worker.least(communicator, folder, runs[0]))
        results.append(communicator.allgather_objects(expected == limited))
        expected, seen = worker.tested(communicator, folder, runs[0], TESTS)
        least = worker.least(communicator, folder, runs[0], TESTS)
        limited = worker.tested(communicator, folder, runs[0], TESTS, memory=least)
        results.append(communicator.allgather_objects((expected, seen) == limited and len(seen) == 2))
    if communicator.rank == 0:
        (folder / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    if not REAL:
        sys.modules.update(pretend.make())
        pretend.pool.Settings.shared = os.environ.get("SCAFFE_CUDA_IPC") != "0"
    main()
