"""Seconds an iteration of model parallelism beside data parallelism; one rank a node of the cluster it runs on.

    jobs/cluster.sh 4 1gbit -- python benchmarks/partitions.py [--net NET] [--device S] [WAY ...]

A way is `sc-rs` (any strategy: every rank has the whole net) or a number of partitions, or `auto`: what the planner
finds for this machine model; with `:still` behind it nothing is exchanged while layers compute, but for the gradients
of what is not split. Columns: seconds of the slowest rank, images/s of all, gain over the first way, bytes a
rank sends in an iteration by the plan; the seconds that the planner predicts from `--link` and `--rate` with nothing
hidden behind computing, and those that it predicts from the speeds that the ranks measure at the start, all at once,
what travels while layers compute followed; how far the measured time is above these. The ways take turns, `--rounds`
times; the median counts.

With `--device S` the products of layers compute nothing and take S seconds in all by sleeping, as in overlap.py; what
is sent is real. `caffenet`: CaffeNet. `speech`: DistBelief's acoustic model (Dean et al., 2012, section 5): 11 frames
of 40 log-energies, 4 hidden layers of 2560 sigmoids, 8192 classes, 42 M parameters.
`local`: after DistBelief's image net (Le et al., 2012): two stages of 10 x 10 and 5 x 5 filters with weights of their
own at each place, pooling and LRN, 8.2 M parameters; pinned to bands, so that ways are numbers of partitions.
`banded`: 6 convolutions of 16 filters on 112 x 112 pixels, pinned likewise: few parameters, wide halos.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

import numpy as np  # noqa: E402
from figures import Figures, Sample, add_flag  # noqa: E402
from nets.prototxt import prototxt  # noqa: E402

from scaffe import log  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.layers.base.context import Context  # noqa: E402
from scaffe.layers.base.layer import TRAIN, Layer  # noqa: E402
from scaffe.layers.base.random import Stream  # noqa: E402
from scaffe.nets import graph  # noqa: E402
from scaffe.nets.build import build_net  # noqa: E402
from scaffe.nets.devices import load_kernels  # noqa: E402
from scaffe.nets.net import Net  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.proto.text import parse_text  # noqa: E402
from scaffe.training.partition.division import Division  # noqa: E402
from scaffe.training.partition.group import Group  # noqa: E402
from scaffe.training.partition.layers.inner_product import GatherGemmOverlap, ProductByInputs  # noqa: E402
from scaffe.training.partition.layers.interior import HaloOverlap  # noqa: E402
from scaffe.training.partition.options import AUTO, plan_of, ranks_of  # noqa: E402
from scaffe.training.partition.planner.cost_model import Ranks  # noqa: E402
from scaffe.training.partition.planner.rewrite import MOVE  # noqa: E402
from scaffe.training.partition.planner.search import Plan  # noqa: E402
from scaffe.training.partition.planner.shapes import LayerShape, shapes_of  # noqa: E402
from scaffe.training.partition.planner.timeline import iteration_seconds  # noqa: E402
from scaffe.training.partition.speeds import timed, with_links  # noqa: E402
from scaffe.training.solver import Method, Solver  # noqa: E402
from scaffe.training.strategies import Role  # noqa: E402

SOLVER = 'base_lr: 1e-6 momentum: 0.9 lr_policy: "fixed"'
CPU_RATE = 5e10
COLUMNS = ("way", "partitions", "s an iteration", "images/s", "x the first", "MB sent", "nothing hidden, s",
           "predicted, s", "measured, %")


def speech(batch: int) -> str:
    """DistBelief's acoustic model as a prototxt."""
    layers = [f'layer {{ name: "input" type: "Input" top: "h0" top: "label" input_param {{ shape {{ dim: {batch} '
              f'dim: 440 }} shape {{ dim: {batch} }} }} }}']
    for n in range(1, 6):
        width = 8192 if n == 5 else 2560
        layers.append(f'layer {{ name: "fc{n}" type: "InnerProduct" bottom: "h{n - 1}" top: "h{n}" inner_product_param '
                      f'{{ num_output: {width} weight_filler {{ type: "xavier" }} }} }}')
        if n < 5:
            layers.append(f'layer {{ name: "sigmoid{n}" type: "Sigmoid" bottom: "h{n}" top: "h{n}" }}')
    layers.append('layer { name: "loss" type: "SoftmaxWithLoss" bottom: "h5" bottom: "label" top: "loss" }')
    return "\n".join(layers)


def local(batch: int) -> str:
    """A locally connected net of two stages as a prototxt."""
    pin = "parallel_param { split: BANDS }"
    layers = ['layer { name: "input" type: "Input" top: "x0" top: "label" input_param { '
              f'shape {{ dim: {batch} dim: 3 dim: 64 dim: 64 }} shape {{ dim: {batch} }} }} }}']
    for n, kernel in ((1, 10), (2, 5)):
        layers.append(f'layer {{ name: "local{n}" type: "LocalConvolution" bottom: "x{n - 1}" top: "local{n}" {pin} '
                      f'local_convolution_param {{ num_output: 8 kernel_size: {kernel} '
                      'weight_filler { type: "xavier" } } }')
        layers.append(f'layer {{ name: "pool{n}" type: "Pooling" bottom: "local{n}" top: "pool{n}" {pin} '
                      'pooling_param { kernel_size: 3 stride: 2 } }')
        layers.append(f'layer {{ name: "norm{n}" type: "LRN" bottom: "pool{n}" top: "x{n}" {pin} lrn_param '
                      '{ local_size: 5 norm_region: WITHIN_CHANNEL } }')
    layers.append('layer { name: "fc" type: "InnerProduct" bottom: "x2" top: "fc" inner_product_param { '
                  'num_output: 100 weight_filler { type: "xavier" } } }')
    layers.append('layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }')
    return "\n".join(layers)


def banded(batch: int) -> str:
    """A stack of convolutions as a prototxt."""
    layers = ['layer { name: "input" type: "Input" top: "x0" top: "label" input_param { '
              f'shape {{ dim: {batch} dim: 16 dim: 112 dim: 112 }} shape {{ dim: {batch} }} }} }}']
    layers += [f'layer {{ name: "conv{n}" type: "Convolution" bottom: "x{n - 1}" top: "x{n}" parallel_param '
               '{ split: BANDS } convolution_param { num_output: 16 kernel_size: 3 pad: 1 '
               'weight_filler { type: "xavier" } } }' for n in range(1, 7)]
    layers.append('layer { name: "pool" type: "Pooling" bottom: "x6" top: "pool" pooling_param { pool: AVE '
                  'kernel_size: 112 } }')
    layers.append('layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc" inner_product_param { '
                  'num_output: 100 weight_filler { type: "xavier" } } }')
    layers.append('layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }')
    return "\n".join(layers)


NETS = {"speech": speech, "local": local, "banded": banded}


def message_of(net: str, batch: int) -> Any:
    """The prepared net, with constant weights and DummyData; values do not change the time."""
    text = NETS[net](batch) if net in NETS else prototxt(net, batch)
    text = text.replace('type: "xavier"', 'type: "constant" value: 0.001')
    text = text.replace('type: "Input"', 'type: "DummyData"').replace("input_param", "dummy_data_param")
    return graph.prepare(parse_text(text, caffe_pb2.NetParameter), TRAIN)


class Naps:
    """Stands for a plan of products, and sleeps instead."""

    def __init__(self, forward: float) -> None:
        self._forward = forward

    def forward(self, *_: Any) -> None:
        """A third of the layer's time."""
        time.sleep(self._forward)

    def backward_weights(self, *_: Any) -> None:
        """Another."""
        time.sleep(self._forward)

    def backward_data(self, *_: Any) -> None:
        """And the last."""
        time.sleep(self._forward)


def sleep_instead(net: Net, whole: dict[str, float], seconds: float) -> None:
    """Let every layer's products take their part of the seconds by sleeping; layers that send still do.

    Args:
        net: a rank's.
        whole: layer name → multiply-adds of the passes that it makes.
        seconds: of an iteration.
    """
    n_all = sum(whole.values())
    for node in net.nodes:
        node.n_fused = node.fused_offset = 0
        if node.param.type == MOVE or "Loss" in node.param.type:
            continue
        layer = node.layer
        n_passes = 1 + any(layer.param_propagate_down) + any(node.propagate_down)
        nap = seconds * whole.get(node.name, 0) / n_all / n_passes
        if isinstance(layer, ProductByInputs):
            for chunk in layer.chunks:
                chunk.plan = Naps(nap * (chunk.place.stop - chunk.place.start) / node.tops[0].shape[1])
        elif isinstance(layer, GatherGemmOverlap):
            layer._plan = Naps(nap)
            layer.pieces = [(rows, Naps(nap * (rows.stop - rows.start) / node.tops[0].shape[0]))
                            for rows, _ in layer.pieces]
        elif isinstance(layer, HaloOverlap):
            for band in layer.bands:
                nap_instead(band.layer, nap * (band.makes.stop - band.makes.start) / node.tops[0].shape[2])
        else:
            nap_instead(layer, nap)


def nap_instead(layer: Layer, nap: float) -> None:
    """Let a layer's forward, the gradient of its bottom and that of its parameters take ``nap`` seconds each."""
    def backward(top: Any, propagate_down: Sequence[bool], bottom: Any) -> None:
        if any(propagate_down):
            time.sleep(nap)
            layer.bottoms_written()
        if any(layer.param_propagate_down):
            time.sleep(nap)

    layer.forward = lambda *_: time.sleep(nap)  # type: ignore[method-assign]
    layer.backward = backward  # type: ignore[method-assign]


class Still(Group):
    """A Group for which nothing is computed while messages travel."""

    spans_nodes = False


@dataclass(frozen=True)
class Known:
    """What the planner knows.

    Attributes:
        layers: of the net.
        ranks: as options say; with ``measured``, the machine's speeds.
    """

    layers: list[LayerShape]
    ranks: Ranks
    measured: Ranks


def known_to(args: argparse.Namespace, communicator: Communicator) -> Known:
    """Build the whole net for the planner; measure the machine, and where its CPUs compute the layers."""
    net = build_net(message_of(args.net, args.batch), Context(TRAIN, load_kernels(1), rng=Stream(1)))
    layers = shapes_of(net)
    rate = args.batch * sum(layer.multiply_adds for layer in layers) / args.device if args.device else args.rate
    ranks = ranks_of(Namespace(link_bandwidth=args.link, multiply_adds=rate), communicator.n_ranks, args.batch, 1)
    measured = with_links(ranks, communicator, layers)
    return Known(layers if args.device else timed(layers, net, communicator), ranks, measured)


def make_solver(way: str, args: argparse.Namespace, communicator: Communicator, known: Known) -> tuple[Solver, Plan]:
    """The net, shared as the way says."""
    way, _, still = way.partition(":")
    plan = plan_of(way if way == AUTO or way.isdecimal() else "1", known.layers, known.ranks)
    message, context = message_of(args.net, args.batch), Context(TRAIN, load_kernels(1), rng=Stream(1))
    options = Namespace(bucket="auto", wire="")
    role, parts, strategy = Role.worker(communicator), None, way
    if plan.n_partitions > 1:
        division, strategy = Division.of(communicator, plan), "sc-rs"
        if still:
            division = replace(division, group=Still(division.group.communicator))
        message, parts = division.shared(message)
        role = Role(role.kind, role.replica, role.n_replicas, role.share, role.ranks, role.world, division)
    net = build_net(message, context, parts=parts)
    if args.device:
        sleep_instead(net, {layer.name: layer.multiply_adds for layer in known.layers}, args.device)
    param = parse_text(SOLVER, caffe_pb2.SolverParameter)
    solver = Solver(param, net, [], communicator, Method(strategy, "auto", True, options), role=role)
    for node in net.nodes if still else ():
        node.layer.bottoms_written = lambda: None
    return solver, plan


def seconds_of(solver: Solver, args: argparse.Namespace) -> float:
    """Of an iteration, on the slowest rank."""
    communicator = solver.communicator
    communicator.barrier()
    started = time.perf_counter()
    solver.step(args.iterations)
    return max(communicator.allgather_objects((time.perf_counter() - started) / args.iterations))


def main() -> None:
    """Print a table of the ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="WAY")
    parser.add_argument("--net", choices=("caffenet", *NETS), default="caffenet")
    parser.add_argument("--batch", type=int, default=64, help="images a rank")
    parser.add_argument("--device", type=float, default=0.0, help="seconds of computing that leave the cores free")
    parser.add_argument("--link", type=float, default=0.1195e9, help="bytes/s of a node's port, for the planner")
    parser.add_argument("--rate", type=float, default=CPU_RATE, help="multiply-adds/s of a rank, for the planner")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    add_flag(parser)
    args = parser.parse_args()
    communicator = Communicator.world()
    communicator.install_excepthook()
    log.silence(True)
    np.seterr(over="ignore", invalid="ignore")  # of sums of what nobody has computed
    ways = args.ways or ["sc-rs", AUTO]
    known = known_to(args, communicator)
    made = [(way, *make_solver(way, args, communicator, known)) for way in ways]
    for _, solver, _ in made:
        solver.strategy.begin()
        solver.step(2)
    gc.collect()
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(args.rounds):
        for way, solver, _ in made:
            times[way].append(seconds_of(solver, args))
    if communicator.rank == 0:
        _show(args, communicator.n_ranks, known, made, times)


def _show(args: Namespace, n_ranks: int, known: Any, made: list[Any], times: dict[str, list[float]]) -> None:
    ranks, machine = known.measured, known.measured.machine
    note = (f"{args.net}, {n_ranks} ranks, {args.batch} images a rank, {args.iterations} iterations a round, "
            f"{args.rounds} rounds; measured {machine.inter_bandwidth / 1e6:.1f} MB/s a port, "
            f"{machine.inter_latency * 1e6:.0f} us a message, sums {machine.sum_bandwidth / 1e9:.2f} GB/s, "
            f"packing {ranks.copy_bandwidth / 1e9:.2f} GB/s, update {ranks.update_bandwidth / 1e9:.2f} GB/s.")
    first = statistics.median(times[made[0][0]])
    with Figures("partitions", COLUMNS, note, args.keep, variant=f"{args.net}-{n_ranks}") as table:
        for way, _, plan in made:
            taken, total = statistics.median(times[way]), plan.total
            seconds = iteration_seconds(known.layers, plan, replace(ranks, n_partitions=plan.n_partitions), ":" in way)
            table.add(way, plan.n_partitions, Sample(times[way]), args.batch * n_ranks / taken, first / taken,
                      total.n_bytes / 1e6, total.seconds, seconds, 100 * (taken / seconds - 1))


if __name__ == "__main__":
    main()
