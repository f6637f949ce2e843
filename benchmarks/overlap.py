"""Time per iteration of the strategies on a net with CaffeNet's parameters; one rank a node of the cluster it runs on.

    jobs/cluster.sh 4 1gbit -- python benchmarks/overlap.py [--batch N] [--device SECONDS] [STRATEGY:REDUCE[:WIRE] ...]

Columns: seconds an iteration of the slowest rank; the root's seconds of messages and of waiting for them; of computing;
`hidden`, the share of the hideable seconds that did not show. Hideable is what the best schedule hides with the same
buckets, layers and messages (schedule.py): layers are timed without messages beside them, each bucket's messages
alone. The ways run one after another, each with two iterations to set up first; DummyData feeds them.

With `--device S` the layers compute nothing and take S seconds by sleeping, shared out by their multiply-adds, a third
of it forward: a node whose GPU computes, with the cores left to the messages.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from figures import Cell, Figures, add_flag  # noqa: E402
from nets.prototxt import prototxt  # noqa: E402
from schedule import Traffic, hideable  # noqa: E402

from scaffe import log  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.layers.base.context import Context  # noqa: E402
from scaffe.layers.base.layer import TRAIN  # noqa: E402
from scaffe.layers.base.random import Stream  # noqa: E402
from scaffe.nets import graph  # noqa: E402
from scaffe.nets.build import build_net  # noqa: E402
from scaffe.nets.devices import load_kernels  # noqa: E402
from scaffe.nets.net import Net  # noqa: E402
from scaffe.nets.summary import summarize  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.proto.text import parse_text  # noqa: E402
from scaffe.training.solver import Method, Solver  # noqa: E402

WAYS = ("sc-b:mpi", "sc-b:auto", "sc-ob-naive:auto", "sc-ob:auto", "sc-obr:mpi", "sc-obr:CB-2", "sc-obr:auto",
        "sc-obr:auto:bf16", "sc-rs:auto", "sc-rs:auto:bf16")
SOLVER = 'base_lr: 1e-6 momentum: 0.9 lr_policy: "fixed"'
MESSAGE_ROUNDS = 2
COLUMNS = ("strategy, reduce, wire", "s an iteration", "messages, s", "wait, s", "compute, s", "x the first",
           "hideable, s", "hidden, %")


class Clock:
    """Seconds that a net's layers take, each on its own."""

    def __init__(self, net: Net) -> None:
        self._running = False  # a fused forward may call the layer's own: counted once
        self.forward, self.backward = [0.0] * len(net.nodes), [0.0] * len(net.nodes)
        for index, node in enumerate(net.nodes):
            node.layer.forward = self._timed(node.layer.forward, self.forward, index)
            node.layer.forward_fused = self._timed(node.layer.forward_fused, self.forward, index)
            node.layer.backward = self._timed(node.layer.backward, self.backward, index)
            node.layer.backward_fused = self._timed(node.layer.backward_fused, self.backward, index)

    def clear(self) -> None:
        """Forget what was counted."""
        self.forward[:] = [0.0] * len(self.forward)
        self.backward[:] = [0.0] * len(self.backward)

    def _timed(self, call: Any, seconds: list[float], index: int) -> Any:
        def timed(*args: Any) -> None:
            if self._running:
                call(*args)
                return
            self._running, started = True, time.perf_counter()
            call(*args)
            self._running = False
            seconds[index] += time.perf_counter() - started

        return timed


def sleep_instead(net: Net, seconds: float) -> None:
    """Let every layer take its part of the seconds by sleeping."""
    work = [line.n_multiply_adds for line in summarize(net)]
    for node, share in zip(net.nodes, (n / sum(work) for n in work), strict=True):
        node.n_fused = node.fused_offset = 0
        node.layer.forward = lambda bottom, top, nap=seconds * share / 3: time.sleep(nap)
        node.layer.backward = lambda top, propagate_down, bottom, nap=seconds * share * 2 / 3: time.sleep(nap)


def make_solver(how: str, args: argparse.Namespace, communicator: Communicator) -> Solver:
    """CaffeNet with constant weights and constant DummyData; values do not change the time."""
    strategy, reduce, *wire = how.split(":")
    text = prototxt("caffenet", args.batch).replace('type: "xavier"', 'type: "constant" value: 0.001')
    text = text.replace('type: "Input"', 'type: "DummyData"').replace("input_param", "dummy_data_param")
    net = build_net(graph.prepare(parse_text(text, caffe_pb2.NetParameter), TRAIN),
                    Context(TRAIN, load_kernels(1), rng=Stream(1)))
    if args.device:
        sleep_instead(net, args.device)
    options = Namespace(bucket=args.bucket, wire=wire[0] if wire else "")
    return Solver(parse_text(SOLVER, caffe_pb2.SolverParameter), net, [], communicator,
                  Method(strategy, reduce, options=options))


def slowest(communicator: Communicator, seconds: list[float]) -> list[float]:
    """Element by element the largest of the ranks' values."""
    return [max(values) for values in zip(*communicator.allgather_objects(seconds), strict=True)]


def time_layers(args: argparse.Namespace, communicator: Communicator) -> tuple[list[float], list[float]]:
    """Seconds of each layer's forward and backward while every rank computes and nobody sends."""
    solver = make_solver("sc-b:auto", args, communicator)
    solver.strategy.begin()
    clock = Clock(solver.net)
    solver.net.forward_backward()
    clock.clear()
    communicator.barrier()
    for _ in range(args.iterations):
        solver.net.forward_backward()
    return tuple(slowest(communicator, [s / args.iterations for s in part])  # type: ignore[return-value]
                 for part in (clock.forward, clock.backward))


def time_messages(solver: Solver) -> list[Traffic]:
    """Seconds of each bucket's messages while nobody computes."""
    strategy, found = solver.strategy, []
    for bucket in strategy.buckets.all:
        seconds = []
        for part in (strategy.parameters, strategy.gradients):
            part.start_on(bucket.place).wait()
            solver.communicator.barrier()
            started = time.perf_counter()
            for _ in range(MESSAGE_ROUNDS):
                part.start_on(bucket.place).wait()
            seconds.append((time.perf_counter() - started) / MESSAGE_ROUNDS)
        found.append(Traffic(bucket.first_layer, *slowest(solver.communicator, seconds)))
    return found


def measure(how: str, args: argparse.Namespace, communicator: Communicator,
            layers: tuple[list[float], list[float]]) -> dict[str, float]:
    """The columns of one way."""
    solver = make_solver(how, args, communicator)
    solver.strategy.begin()
    solver.step(2)  # the second one is the first to send parameters
    solver.timers.clear()
    communicator.barrier()
    start = time.perf_counter()
    solver.step(args.iterations)
    seconds, = slowest(communicator, [(time.perf_counter() - start) / args.iterations])
    spent = {name: s / args.iterations for name, s in solver.timers.seconds.items()}
    messages = solver.timers.hidden()[0] / args.iterations
    solver.strategy.synchronize_parameters()
    result = {"seconds": seconds, "messages": messages,
              "wait": spent.get("communication", 0.0), "compute": spent["forward"] + spent["backward"]}
    if hasattr(solver.strategy.parameters, "start_on") and hasattr(solver.strategy.gradients, "start_on"):
        traffic = time_messages(solver)
        alone = sum(map(sum, layers)) + sum(b.down + b.up for b in traffic) + spent.get("update", 0.0)
        result |= {"hideable": hideable(*layers, traffic)}
        result |= {"hidden": (alone - seconds) / result["hideable"]}
    return result


def main() -> None:
    """Print a table of the ways asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="STRATEGY:REDUCE[:WIRE]", help="all if none is named")
    parser.add_argument("--batch", type=int, default=8, help="images a rank")
    parser.add_argument("--bucket", default="auto", help="bytes, as train's -bucket")
    parser.add_argument("--device", type=float, default=0.0, help="seconds of computing that leave the cores free")
    parser.add_argument("--iterations", type=int, default=3)
    add_flag(parser)
    args = parser.parse_args()
    communicator = Communicator.world()
    communicator.install_excepthook()
    log.silence(True)
    layers = time_layers(args, communicator)
    note = (f"{communicator.n_ranks} ranks, CaffeNet, {args.batch} images a rank, {args.iterations} iterations; layers "
            f"alone {sum(layers[0]):.3f} s forward, {sum(layers[1]):.3f} s backward.")
    variant = f"{communicator.n_ranks}-{'device' if args.device else 'host'}"
    is_root = communicator.rank == 0
    with Figures("overlap", COLUMNS, note, args.keep, variant=variant) if is_root else nullcontext() as table:
        first = 0.0
        for how in args.ways or WAYS:
            row = measure(how, args, communicator, layers)
            gc.collect()
            first = first or row["seconds"]
            if table is not None:
                table.add(how, *cells(row, first))


def cells(row: dict[str, float], first: float) -> list[Cell]:
    """As COLUMNS, but the name."""
    hidden = row.get("hidden")
    return [*(row[name] for name in ("seconds", "messages", "wait", "compute")), first / row["seconds"],
            row.get("hideable"), None if hidden is None else 100 * hidden]


if __name__ == "__main__":
    main()
