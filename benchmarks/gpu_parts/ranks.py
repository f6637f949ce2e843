"""Strategies on ranks that share the GPUs: under mpirun, a line of JSON for each way.

    mpirun -np N python benchmarks/gpu_parts/ranks.py NET --batch N_IN_ALL --precision tf32 STRATEGY:REDUCE[:WIRE] ...
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from argparse import Namespace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from gpu_parts.ours import batch_for, build, compute_for, make_solver  # noqa: E402

from scaffe import log  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.nets.devices import load_kernels  # noqa: E402
from scaffe.training.solver import Method  # noqa: E402

WARM_STEPS = 3


def measure(how: str, options: argparse.Namespace, communicator: Communicator) -> dict[str, object]:
    """One way's row, the same on all ranks."""
    strategy, reduce, *wire = how.split(":")
    compute = compute_for(options.precision, communicator.node_rank)
    n_images = options.batch // communicator.n_ranks
    net = build(options.net, batch_for(options.net, n_images, communicator.rank), load_kernels(1, compute),
                compute.dtype)
    settings = Namespace(bucket="auto", wire=wire[0] if wire else "")
    solver = make_solver(net, communicator, Method(strategy, reduce, options=settings))
    solver.strategy.begin()
    solver.step(WARM_STEPS)
    solver.strategy.synchronize_parameters()
    solver.timers.clear()
    communicator.barrier()
    started = time.perf_counter()
    solver.step(options.steps)
    solver.strategy.synchronize_parameters()
    net.context.kernels.synchronize()
    seconds = (time.perf_counter() - started) / options.steps
    total, hidden = solver.timers.hidden()
    rows = communicator.allgather_objects((seconds, total / options.steps, hidden))
    slowest = max(row[0] for row in rows)
    return {"way": how, "ranks": communicator.n_ranks, "images_per_second": n_images * len(rows) / slowest,
            "milliseconds": slowest * 1e3, "communication_milliseconds": rows[0][1] * 1e3, "hidden": rows[0][2]}


def main() -> None:
    """Measure way after way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net")
    parser.add_argument("ways", nargs="+", metavar="STRATEGY:REDUCE[:WIRE]")
    parser.add_argument("--batch", type=int, default=256, help="of all ranks together")
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    communicator = Communicator.world()
    communicator.install_excepthook()
    log.silence(True)
    for how in options.ways:
        row = measure(how, options, communicator)
        if communicator.rank == 0:
            print(json.dumps(row), flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
