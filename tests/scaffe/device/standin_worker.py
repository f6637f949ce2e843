"""One process over the stand-in for CUDA: runs what it is told to and writes what was recorded.

    [mpirun -np N] python tests/scaffe/device/standin_worker.py RESULTS commands COMMAND...
    mpirun -np N python tests/scaffe/device/standin_worker.py RESULTS strategies|collectives

RESULTS is a folder; each rank writes rank-N.json there. SCAFFE_STANDIN names the folder that has the stand-in.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tests.pretend import nvimgcodec

GPUS = "1,2"
LENGTHS = (0, 1, 1000, 300_001)
ALGORITHMS = {"ipc": ("M", "C", "auto"), "staged": ("C", "B", "auto"), "aware": ("C", "B", "auto")}


def commands(lines: list[str]) -> None:
    """Run commands one after the other, as a user types them."""
    from scaffe.cli import main as cli

    for line in lines:
        if code := cli.main(shlex.split(line)):
            raise SystemExit(code)


def strategies() -> None:
    """Train under every strategy. Nothing stands in for NCCL."""
    from tests.scaffe.device import device_worker

    for run in chain.from_iterable(device_worker.PARTS[part] for part in ("each", "more")):
        strategy, reduce, bucket, rule = run
        device_worker.train(strategy, reduce, bucket, GPUS, rule)


def collectives(kind: str) -> None:
    """Every collective, at once and beside, on buffers that other ranks can map and on others."""
    from scaffe.collectives import Communicator
    from scaffe.collectives.cuda import device

    communicator = Communicator.world(deadline=60)
    communicator.install_excepthook()
    number = int(GPUS.split(",")[communicator.rank])
    device.make_current(number)
    print(communicator.describe_device())
    for n_elems in LENGTHS:
        for array in (communicator.alloc(n_elems, memory="device"), device.load().zeros(n_elems, np.float32)):
            for algorithm in ALGORITHMS[kind]:
                communicator.allreduce(array, algorithm=algorithm)
                communicator.reduce(array, 0, algorithm=algorithm)
                communicator.ireduce(array, 1).wait(60)
                communicator.iallreduce(array, algorithm=algorithm).wait(60)
            communicator.reduce_scatter(array), communicator.allgather(array)
            array.set(np.full(n_elems, communicator.rank + 1, np.float32))
            communicator.bcast(array, 1)
            if kind != "ipc" and not (array.get() == 2).all():  # messages are copies, which are real
                raise RuntimeError(f"bcast over {kind}: expected 2 everywhere, got {array.get()}")
    communicator.barrier()


def let_ipc_be_proved() -> None:
    """Write the sums that IPC's proof wants its kernels to have written."""
    from scaffe.collectives.cuda.ipc import windows

    launch, runtime = windows._sum_part, windows.device.load().cuda.runtime

    def sum_part(bases: Any, rank: int) -> bool:
        launch(bases, rank)
        total = np.full(windows.PART_ELEMS, len(bases) * (len(bases) + 1) // 2, windows.DTYPE)
        for base in bases:
            runtime.memcpy(base + rank * total.nbytes, total.ctypes.data, total.nbytes, windows.HOST_TO_DEVICE)
        return True

    windows._sum_part = sum_part


def write(record: Any, results: Path) -> None:
    """Write what was recorded in this rank."""
    calls = record.calls()
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
    found = {"decoded_by": sorted(set(nvimgcodec.Settings.threads)), "faults": record.faults(),
             "contexts": sorted(record.contexts()), "threads": len(set(calls["thread"])),
             "calls": Counter(name.decode() for name in calls["name"])}
    (results / f"rank-{rank}.json").write_text(json.dumps(found))


def main(results: str, what: str, *rest: str) -> None:
    """Run it and write this rank's part."""
    from tests.standin import install

    record = install(Path(os.environ["SCAFFE_STANDIN"]))
    sys.modules["nvidia.nvimgcodec"] = nvimgcodec.module()
    kind = os.environ.get("SCAFFE_STANDIN_KIND", "")
    if kind == "ipc":
        let_ipc_be_proved()
    ways = {"commands": lambda: commands(list(rest)), "strategies": strategies,
            "collectives": lambda: collectives(kind)}
    try:
        ways[what]()
    finally:
        write(record, Path(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
