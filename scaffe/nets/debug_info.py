"""Caffe's ``debug_info``: the mean magnitude of every blob, parameter and gradient, logged layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.log import error, info
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node


def log_values(net: Net, wanted: Callable[[], bool] = lambda: True) -> None:
    """Log a net's values from now on, in the lines of Caffe 1.0. ``wanted``: asked at every layer whether to log it."""

    def after_forward(index: int) -> None:
        if wanted():
            for line in forward_lines(net.nodes[index]):
                info(line)

    def after_backward(index: int) -> None:
        if wanted() and net.nodes[index].needs_backward:
            for line in backward_lines(net.nodes[index]):
                info(line)
        if wanted() and index == 0:
            error(totals_line(net))

    net.after_forward.insert(0, after_forward)
    net.after_backward.insert(0, after_backward)  # ahead of those who send the gradients away


def forward_lines(node: Node) -> Iterator[str]:
    """The lines for a layer's tops and parameters."""
    for name, blob in zip(node.top_names, node.tops, strict=False):
        yield f"    [Forward] Layer {node.name}, top blob {name} data: {mean_magnitude(blob.data_flat):g}"
    for index, blob in enumerate(node.layer.blobs):
        value = mean_magnitude(blob.data_flat)
        yield f"    [Forward] Layer {node.name}, param blob {_name(node, index)} data: {value:g}"


def backward_lines(node: Node) -> Iterator[str]:
    """The lines for the gradients that a layer computed."""
    for name, blob, wanted in zip(node.bottom_names, node.bottoms, node.propagate_down, strict=False):
        if wanted:
            yield f"    [Backward] Layer {node.name}, bottom blob {name} diff: {mean_magnitude(blob.diff_flat):g}"
    for index, (blob, wanted) in enumerate(zip(node.layer.blobs, node.layer.param_propagate_down, strict=False)):
        if wanted:
            yield f"    [Backward] Layer {node.name}, param blob {index} diff: {mean_magnitude(blob.diff_flat):g}"


def totals_line(net: Net) -> str:
    """The line with the L1 and L2 norms of all parameters and of all gradients."""
    blobs: list[Blob] = [param.blob for param in net.params.params]
    (l1_data, l2_data), (l1_diff, l2_diff) = (_norms([getattr(b, kind) for b in blobs])
                                              for kind in ("data_flat", "diff_flat"))
    return f"    [Backward] All net params (data, diff): L1 norm = ({l1_data:g}, {l1_diff:g}); " \
           f"L2 norm = ({l2_data:g}, {l2_diff:g})"


def mean_magnitude(values: Any) -> float:
    """The mean of the elements' absolute values, summed in float64; nan for an empty array."""
    return float(np.abs(values).sum(dtype=np.float64)) / values.size if values.size else float("nan")


def _norms(arrays: list[Any]) -> tuple[float, float]:
    sums = [float(np.abs(a).sum(dtype=np.float64)) for a in arrays]
    squares = [float(np.square(a, dtype=np.float64).sum()) for a in arrays]
    return sum(sums), sqrt(sum(squares))


def _name(node: Node, index: int) -> str:
    """A parameter's name, or its number in the layer."""
    given = node.param.param[index].name if index < len(node.param.param) else ""
    return given or str(index)
