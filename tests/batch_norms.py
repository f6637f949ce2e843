"""How near batch norm's float32 is to Caffe's formula: ``python -m tests.batch_norms NET... [-batch N] [-rows MOST]``.

Builds each prototxt up to its last BatchNorm, with noise for images and msra fillers where a deploy file has none, and
runs it forward and backward in training. For every BatchNorm layer of at most MOST numbers a channel it takes what came
in (bottom and top gradient, float32) and compares two results with Caffe's formula in float64: ours, and the same
formula in float32 in the order of BVLC Caffe's batch_norm_layer.cpp. Prints, for each net, the largest error of each
over those layers, relative to the largest number, and in how many layers ours is the nearer one or as near.
The nets are other people's, so no test runs this.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.files.repair import repair_net
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.nets.net import Net
from scaffe.proto import caffe_pb2
from scaffe.proto.text import parse_text, read_text
from tests.zoo import with_dummy_data

FOLLOWERS = ("Scale", "Bias", "ReLU")
WEIGHTS = {"Convolution": "convolution_param", "InnerProduct": "inner_product_param"}


def shortened(net: Any, batch: int) -> Any:
    """The net up to its last BatchNorm and what follows it alone, with the sum of squares as its loss."""
    for layer in net.layer:
        for shape in layer.dummy_data_param.shape:
            shape.dim[0] = batch  # a deploy file may say 1
    kinds = [layer.type for layer in net.layer]
    end = len(kinds) - kinds[::-1].index("BatchNorm")
    while end < len(kinds) and kinds[end] in FOLLOWERS:
        end += 1
    del net.layer[end:]
    for layer in net.layer:
        layer.batch_norm_param.ClearField("use_global_stats")
        if layer.type != "BatchNorm":
            layer.ClearField("batch_norm_param")
        if layer.type in WEIGHTS and not getattr(layer, WEIGHTS[layer.type]).weight_filler.HasField("type"):
            getattr(layer, WEIGHTS[layer.type]).weight_filler.type = "msra"
    loss = net.layer.add(name="sum_of_squares", type="Reduction", bottom=[net.layer[end - 1].top[0]], top=["loss"],
                         loss_weight=[1])
    loss.reduction_param.operation = loss.reduction_param.SUMSQ
    return net


class Watch:
    """What goes into the chosen layers and comes out of them, in one forward and backward of a net."""

    def __init__(self, net: Net, most_rows: int) -> None:
        self.net, self.seen = net, {i: {} for i, node in enumerate(net.nodes) if node.param.type == "BatchNorm"
                                    and node.bottoms[0].n_elems // node.bottoms[0].shape[1] <= most_rows}
        net.unfused = True
        net.before_forward.append(lambda i: self._keep(i, "x", "bottoms", "data"))
        net.after_forward.append(lambda i: self._keep(i, "y", "tops", "data"))
        net.before_backward.append(lambda i: self._keep(i, "gy", "tops", "diff"))
        net.after_backward.append(lambda i: self._keep(i, "gx", "bottoms", "diff"))

    def _keep(self, index: int, name: str, side: str, numbers: str) -> None:
        if index in self.seen:
            self.seen[index][name] = np.array(getattr(getattr(self.net.nodes[index], side)[0], numbers), order="C")


def formula(x: np.ndarray, gy: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Caffe's top and bottom gradient, (N, C, ...), in the arrays' type: sums over positions first, then over items."""
    n, c = x.shape[:2]
    shape, kind = x.shape, x.dtype.type
    x, gy = x.reshape(n, c, -1), gy.reshape(n, c, -1)
    ones, share = np.ones(x.shape[2], kind), kind(1 / (n * x.shape[2]))

    def mean(values: np.ndarray) -> np.ndarray:
        by_item = (values.reshape(n * c, -1) @ ones * share).reshape(n, c)
        return (by_item.T @ np.ones(n, kind))[:, None]

    centred = x - mean(x)
    deviation = np.sqrt(mean(centred * centred) + kind(eps))
    y = centred / deviation
    gx = (gy - mean(gy) - mean(gy * y) * y) / deviation
    return y.reshape(shape), gx.reshape(shape)


def error(got: np.ndarray, right: np.ndarray) -> float:
    """The largest difference, relative to the largest number."""
    return float(np.abs(got - right).max() / max(np.abs(right).max(), 1e-300))


def errors_of(net: Net, most_rows: int) -> list[tuple[int, float, float, float, float]]:
    """For each layer the numbers a channel, and the errors of our top, Caffe's top, our gradient, Caffe's gradient."""
    watch = Watch(net, most_rows)
    net.forward()
    net.backward()
    found = []
    for index, seen in watch.seen.items():
        eps = net.nodes[index].param.batch_norm_param.eps
        right = formula(seen["x"].astype(np.float64), seen["gy"].astype(np.float64), eps)
        caffe = formula(seen["x"], seen["gy"], eps)
        found.append((seen["x"].size // seen["x"].shape[1], error(seen["y"], right[0]), error(caffe[0], right[0]),
                      error(seen["gx"], right[1]), error(caffe[1], right[1])))
    return found


def main() -> None:
    """Print a line of a table for each net."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nets", nargs="+")
    parser.add_argument("-batch", type=int, default=1)
    parser.add_argument("-side", type=int, default=224)
    parser.add_argument("-rows", type=int, default=200)
    options = parser.parse_args()
    for path in options.nets:
        text, _ = repair_net(read_text(path), layer_types.names())
        net = parse_text(text, caffe_pb2.NetParameter)
        message = shortened(with_dummy_data(net, options.batch, options.side), options.batch)
        found = np.array(errors_of(build_net(graph.prepare(message, 0), Context(0, cpu, rng=Stream(1))), options.rows))
        nearer = [int((found[:, i] <= found[:, i + 1]).sum()) for i in (1, 3)]
        worst = found.max(0)
        print(f"| {Path(path).stem} | {options.batch} | {len(found)} | {found[:, 0].min():.0f}-{worst[0]:.0f} | "
              f"{worst[1]:.1e} | {worst[2]:.1e} | {nearer[0]} | {worst[3]:.1e} | {worst[4]:.1e} | {nearer[1]} |",
              flush=True)


if __name__ == "__main__":
    main()
