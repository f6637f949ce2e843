"""Time per iteration of the strategies on a net with CaffeNet's parameters; one rank a node of the cluster it runs on.

    jobs/cluster.sh 4 1gbit -- python benchmarks/overlap.py [--batch N] [--iterations N] [STRATEGY:REDUCE[:BUCKET] ...]

``wait`` is the time an iteration in which the root stood still for messages. Slowest rank; the ways run one after
another, each with an iteration to set up first.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from argparse import Namespace
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from nets.prototxt import prototxt  # noqa: E402

from collectives.communicator import Communicator  # noqa: E402
from layers.layer import TRAIN, Context  # noqa: E402
from layers.random import Stream  # noqa: E402
from scaffe import graph, log  # noqa: E402
from scaffe.build import build_net  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.proto.text import parse_text  # noqa: E402
from scaffe.setup import load_kernels  # noqa: E402
from scaffe.solver import Method, Solver  # noqa: E402

WAYS = ("sc-b:mpi", "sc-b:auto", "sc-ob:auto", "sc-obr:mpi", "sc-obr:CB-2", "sc-obr:auto", "sc-rs:auto")
SOLVER = 'base_lr: 1e-6 momentum: 0.9 lr_policy: "fixed"'


def make_solver(how: str, batch: int, communicator: Communicator) -> Solver:
    """CaffeNet with constant weights and one random batch; values do not change the time."""
    strategy, reduce, *bucket = how.split(":")
    text = prototxt("caffenet", batch).replace('type: "xavier"', 'type: "constant" value: 0.001')
    message = parse_text(text, caffe_pb2.NetParameter)
    net = build_net(graph.prepare(message, TRAIN), Context(TRAIN, load_kernels(1), rng=Stream(1)))
    net.blobs["data"].data = np.random.default_rng(1).standard_normal(net.blobs["data"].shape, np.float32)
    options = Namespace(bucket=bucket[0] if bucket else "auto")
    return Solver(parse_text(SOLVER, caffe_pb2.SolverParameter), net, [], communicator,
                  Method(strategy, reduce, options=options))


def measure(how: str, args: argparse.Namespace, communicator: Communicator) -> tuple[float, float, float]:
    """Seconds an iteration of the slowest rank, the root's seconds of waiting, and its seconds of computing."""
    solver = make_solver(how, args.batch, communicator)
    solver.strategy.begin()
    solver.step(1)
    solver.strategy.settle()
    solver.timers.seconds.clear()
    communicator.barrier()
    start = time.perf_counter()
    solver.step(args.iterations)
    solver.strategy.settle()
    seconds = max(communicator.allgather_objects(time.perf_counter() - start)) / args.iterations
    spent = {name: s / args.iterations for name, s in solver.timers.seconds.items()}
    return seconds, spent.get("communication", 0.0), spent["forward"] + spent["backward"]


def main() -> None:
    """Print a table of the ways asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="STRATEGY:REDUCE[:BUCKET]", help="all if none is named")
    parser.add_argument("--batch", type=int, default=8, help="images a rank")
    parser.add_argument("--iterations", type=int, default=3)
    args = parser.parse_args()
    communicator = Communicator.world()
    communicator.install_excepthook()
    log.silence(True)
    if communicator.rank == 0:
        print(f"# {communicator.n_ranks} ranks, CaffeNet, {args.batch} images a rank, {args.iterations} iterations")
        print("how                 s/iteration   wait s  compute s   x first", flush=True)
    first = 0.0
    for how in args.ways or WAYS:
        seconds, wait, compute = measure(how, args, communicator)
        gc.collect()
        first = first or seconds
        if communicator.rank == 0:
            print(f"{how:20s}{seconds:11.3f} {wait:8.3f} {compute:10.3f} {first / seconds:9.2f}", flush=True)


if __name__ == "__main__":
    main()
