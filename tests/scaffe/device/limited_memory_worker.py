"""One rank of the test of limited memory of a device on several: each strategy without a limit and within one.

    mpirun -np N python tests/scaffe/device/limited_memory_worker.py FOLDER

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
RUNS = (("sc-b", "auto", 0), ("sc-ob", "auto", 500), ("sc-obr", "auto", 500), ("sc-rs", "auto", 600))


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
        results = [worker.compared(communicator, folder, run, "", {"history", "parameters"}) for run in RUNS]
        results.append(worker.compared(communicator, folder, ("ssp", "auto", 500), "", set()))
        expected = worker.resumed(communicator, folder, RUNS[2])
        limited = worker.resumed(communicator, folder, RUNS[2], memory=worker.least(communicator, folder, RUNS[2]))
        results.append(communicator.allgather_objects(expected == limited))
    if communicator.rank == 0:
        (folder / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    if not REAL:
        sys.modules.update(pretend.make())
        pretend.pool.Settings.shared = os.environ.get("SCAFFE_CUDA_IPC") != "0"
    main()
