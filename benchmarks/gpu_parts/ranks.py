"""Strategies on ranks that share the GPUs: under mpirun, a line of JSON for each way.

    mpirun -np N python benchmarks/gpu_parts/ranks.py NET --batch N_IN_ALL --precision tf32 STRATEGY:REDUCE[:WIRE] ...

Batches lie on the GPU, or come from ``--lmdb``. ``--timelines`` is a folder for a trace of each way, as ``train
-timeline`` writes it, of iterations after those that are measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from gpu_parts import hidden, records  # noqa: E402
from gpu_parts.ours import SOLVER, batch_for, build, compute_for, make_solver  # noqa: E402

from scaffe import log  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.nets.devices import load_kernels  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.proto.text import parse_text  # noqa: E402
from scaffe.training.assembly import build_solver  # noqa: E402
from scaffe.training.observers.timeline import Timeline  # noqa: E402
from scaffe.training.solver import Method, Solver  # noqa: E402

WARM_STEPS, TRACED_STEPS = 3, 5


def solver_of(how: str, options: argparse.Namespace, communicator: Communicator) -> Solver:
    """What trains in one way: from records, or on a batch that lies on the GPU."""
    strategy, reduce, *wire = how.split(":")
    settings = records.flags(strategy, reduce, wire[0] if wire else "", options.precision)
    if options.lmdb:
        param = parse_text(SOLVER, caffe_pb2.SolverParameter)
        param.net_param.CopyFrom(parse_text(records.reading(options.net, options.batch, options.lmdb),
                                            caffe_pb2.NetParameter))
        solver = build_solver(communicator, param, settings)
        solver.tell("begin")
        return solver
    compute = compute_for(options.precision, communicator.node_rank)
    batch = batch_for(options.net, options.batch // communicator.n_ranks, communicator.rank)
    net = build(options.net, batch, load_kernels(1, compute), compute.dtype)
    return make_solver(net, communicator, Method(strategy, reduce, options=settings))


def trace(solver: Solver, file: Path) -> None:
    """Train a little more, and write what happened when."""
    timeline = Timeline(str(file))
    timeline.begin(solver)
    solver.observers.append(timeline)
    solver.step(TRACED_STEPS)
    timeline.finish(solver)


def measure(how: str, options: argparse.Namespace, communicator: Communicator) -> dict[str, object]:
    """One way's row, the same on all ranks."""
    n_images = options.batch // communicator.n_ranks
    solver = solver_of(how, options, communicator)
    solver.strategy.begin()
    solver.step(WARM_STEPS)
    solver.strategy.synchronize_parameters()
    communicator.barrier()
    started = time.perf_counter()
    solver.step(options.steps)
    solver.strategy.synchronize_parameters()
    solver.net.context.kernels.synchronize()
    seconds = (time.perf_counter() - started) / options.steps
    slowest = max(communicator.allgather_objects(seconds))
    if options.timelines:
        trace(solver, options.timelines / f"{options.net}.{how.replace(':', '.')}.json")
    parts = hidden.measure(solver)
    solver.close()
    return {"way": how, "ranks": communicator.n_ranks, "images_per_second": n_images * communicator.n_ranks / slowest,
            "milliseconds": slowest * 1e3, **parts.row(slowest)}


def main() -> None:
    """Measure way after way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net")
    parser.add_argument("ways", nargs="+", metavar="STRATEGY:REDUCE[:WIRE]")
    parser.add_argument("--batch", type=int, default=256, help="of all ranks together")
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lmdb", type=Path, help="what to read, instead of batches on the GPU")
    parser.add_argument("--timelines", type=Path, help="a folder for traces")
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
