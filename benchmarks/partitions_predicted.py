"""DistBelief's Fig. 3 by the planner's model: how many times as fast one net trains with more partitions.

    python benchmarks/partitions_predicted.py [--link BYTES/S] [--rate MULTIPLY-ADDS/S] [--svg FILE] [NET ...]

One replica on so many nodes of one rank each, one batch of `--images` whatever their number; nothing is hidden behind
computing. `speech` is that of partitions.py; `local` has 1.7 billion parameters, as DistBelief's largest (Dean et al.,
2012, section 5): images of 100 x 100, three stages of 10 x 10 filters with weights of their own at each place, 36 maps,
pooling and contrast normalisation, 21,841 classes. A net is built without parameters.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from figures import Figures, add_flag  # noqa: E402
from partitions import speech  # noqa: E402

from scaffe.layers.base.context import Context  # noqa: E402
from scaffe.layers.base.layer import TRAIN  # noqa: E402
from scaffe.line_chart import Axis, Chart, Line, Logarithmic  # noqa: E402
from scaffe.nets import graph  # noqa: E402
from scaffe.nets.build import build_net  # noqa: E402
from scaffe.nets.devices import load_kernels  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.proto.text import parse_text  # noqa: E402
from scaffe.training.partition.options import LINK, RATE, plan_of, ranks_of  # noqa: E402
from scaffe.training.partition.planner.search import Plan  # noqa: E402
from scaffe.training.partition.planner.shapes import LayerShape, shapes_of  # noqa: E402

COUNTS = (1, 2, 4, 8, 16, 32, 64, 81, 128, 144)
STAGES = ((1, 3), (1, 3), (6, 6))  # stride and window of each stage's pooling
FILTERS = 'num_output: 36 kernel_size: 10 weight_filler { type: "xavier" }'


def local(batch: int) -> str:
    """The locally connected net as a prototxt."""
    layers = ['layer { name: "input" type: "Input" top: "x0" top: "label" input_param { '
              f'shape {{ dim: {batch} dim: 3 dim: 100 dim: 100 }} shape {{ dim: {batch} }} }} }}']
    for n, (stride, window) in enumerate(STAGES, 1):
        layers += [f'layer {{ name: "local{n}" type: "LocalConvolution" bottom: "x{n - 1}" top: "local{n}" '
                   f'local_convolution_param {{ {FILTERS} }} }}',
                   f'layer {{ name: "lcn{n}" type: "LCN" bottom: "local{n}" top: "lcn{n}" }}',
                   f'layer {{ name: "pool{n}" type: "Pooling" bottom: "lcn{n}" top: "x{n}" pooling_param {{ '
                   f'kernel_size: {window} stride: {stride} }} }}']
    return "\n".join([*layers, 'layer { name: "fc" type: "InnerProduct" bottom: "x3" top: "fc" inner_product_param { '
                      'num_output: 21841 weight_filler { type: "xavier" } } }',
                      'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }'])


NETS = {"speech": speech, "local": local}


def layers_of(net: str) -> list[LayerShape]:
    """What the planner knows of a net."""
    message = graph.prepare(parse_text(NETS[net](2), caffe_pb2.NetParameter), TRAIN)
    return shapes_of(build_net(message, Context(TRAIN, load_kernels(1), fills=False)))


def plans(layers: Sequence[LayerShape], args: argparse.Namespace) -> dict[int, Plan]:
    """Partitions → the plan of one replica."""
    known = Namespace(link_bandwidth=args.link, multiply_adds=args.rate)
    return {n: plan_of(str(n), layers, ranks_of(known, n, args.images / n, 1)) for n in COUNTS}


def main() -> None:
    """Print a table of the nets, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET", default=[*NETS])
    parser.add_argument("--images", type=int, default=128, help="of the batch")
    parser.add_argument("--link", type=float, default=LINK, help="bytes/s of a node's port")
    parser.add_argument("--rate", type=float, default=RATE, help="multiply-adds/s of a rank")
    parser.add_argument("--svg", default="", metavar="FILE")
    add_flag(parser)
    args = parser.parse_args()
    note = (f"Predicted, not measured: times as fast as one rank, {args.images} images however many ranks share them, "
            f"{args.link / 1e6:g} MB/s a port, {args.rate:g} multiply-adds/s a rank, nothing hidden.")
    lines = []
    with Figures("partitions-predicted", ("net, on so many ranks", *map(str, COUNTS)), note, args.keep) as table:
        for net in args.nets:
            layers = layers_of(net)
            found = plans(layers, args)
            gains = {n: found[1].total.seconds / plan.total.seconds for n, plan in found.items()}
            name = f"{net}, {sum(layer.n_parameters for layer in layers) / 1e6:,.0f} M"
            table.add(name, *gains.values())
            lines.append(Line(name, list(gains.items())))
    if args.svg:
        lines.append(Line("perfect", [(n, float(n)) for n in COUNTS]))
        Path(args.svg).write_text(Chart("Training speed-up of one net, predicted", lines,
                                        Axis(scale=Logarithmic(2), label="partitions"),
                                        Axis(scale=Logarithmic(2), label="times as fast")).svg())


if __name__ == "__main__":
    main()
