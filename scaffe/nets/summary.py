"""A net in figures: a summary layer by layer, its speed, and Caffe's ``debug_info``, the magnitudes of all blobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.detection.boxes import TRUTH_COLUMNS
from scaffe.layers.kernels.backend import Backend
from scaffe.layers.kernels.specs import ConvSpec
from scaffe.log import error, info
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node

MARKS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
DATA_TYPES = ("Data", "ImageData", "HDF5Data", "MemoryData", "WindowData", "DummyData", "DenseImageData",
              "ImageSegData", "VideoData", "AnnotatedData")


def _convolution(node: Node) -> int:
    return node.tops[0].n_elems * node.layer.blobs[0].count(1) * len(node.tops)


def _recurrent(node: Node) -> int:
    n_steps = node.bottoms[0].shape[0] * node.bottoms[0].shape[1]
    return n_steps * sum(blob.n_elems for blob in node.layer.blobs if blob.ndim > 1)


MULTIPLY_ADDS: dict[str, Callable[[Node], int]] = {
    **dict.fromkeys(("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution"), _convolution),
    "Deconvolution": lambda node: node.bottoms[0].n_elems * node.layer.blobs[0].count(1) * len(node.tops),
    "LocalConvolution": lambda node: node.tops[0].n_elems * node.layer.blobs[0].count(3),
    "InnerProduct": lambda node: node.bottoms[0].n_elems * int(node.param.inner_product_param.num_output),
    "LSTM": _recurrent, "RNN": _recurrent}


@dataclass(frozen=True)
class Line:
    """One layer's cost for one batch.

    Attributes:
        n_parameters: number of learnable elements that the layer owns.
        n_multiply_adds: of forward, for layer types that compute matrix products; 0 for the others.
        n_bytes: bytes of its tops' data, without tops that share a bottom's memory.
    """

    name: str
    type: str
    shapes: tuple[Shape, ...]
    n_parameters: int
    n_multiply_adds: int
    n_bytes: int


def summarize(net: Net) -> list[Line]:
    """One line per layer, in order. Parameters shared by name are counted at the first layer that has them."""
    owned = {id(param.blob) for param in net.params.params}
    lines = []
    for node in net.nodes:
        new_tops = [top for top in node.tops if not any(top is bottom for bottom in node.bottoms)]
        n_bytes = sum(top.n_elems * top.dtype.itemsize for top in new_tops) if node.param.type != "Split" else 0
        count = MULTIPLY_ADDS.get(node.param.type)
        lines.append(Line(node.name, node.param.type, tuple(top.shape for top in node.tops),
                          sum(blob.n_elems for blob in node.layer.blobs if id(blob) in owned),
                          count(node) if count else 0, n_bytes))
    return lines


def products(net: Net) -> dict[str, tuple[int, int]]:
    """Multiply-adds of one pass forward and one backward, by layer, for layer types that compute matrix products.

    Backward has a product of forward's cost for the weights if they learn, and one for the bottom if it has a diff.
    """
    counted = {}
    for node in net.nodes:
        if count := MULTIPLY_ADDS.get(node.param.type):
            forward = count(node)
            counted[node.name] = forward, forward * (node.layer.param_propagate_down[0] + any(node.propagate_down))
    return counted


def table(lines: Sequence[Line]) -> list[str]:
    """The summary as lines of text, with the totals last."""
    rows = [("layer", "type", "top", "parameters", "multiply-adds", "bytes")]
    rows += [(line.name, line.type, " ".join("x".join(map(str, shape)) or "1" for shape in line.shapes),
              f"{line.n_parameters:,}", _short(line.n_multiply_adds), _short(line.n_bytes)) for line in lines]
    totals = [sum(getattr(line, name) for line in lines) for name in ("n_parameters", "n_multiply_adds", "n_bytes")]
    rows.append(("total", "", "", f"{totals[0]:,}", _short(totals[1]), _short(totals[2])))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    align = [str.ljust] * 3 + [str.rjust] * 3
    text = ["  ".join(put(cell, width) for put, cell, width in zip(align, row, widths, strict=False)) for row in rows]
    n_weights = totals[0] * 4
    return [*text, f"parameters: {_short(n_weights)}B; blobs of one batch: {_short(totals[2])}B, "
                   f"training: {_short(2 * (n_weights + totals[2]))}B with gradients"]


def without_data(message: Any, shape: Sequence[int]) -> Any:
    """Replace every data layer by an Input layer, so that the net can be built without data. Raises UserError if the
    shape is empty or has a dimension below 1.

    Args:
        shape: of each data layer's first top. Its other tops are labels: one an image, (shape[0],), one a pixel for
            the types of segmentation, a box an image for AnnotatedData.
    """
    if not shape or min(shape) < 1:
        raise UserError(f"-shape must be dimensions above 0 with commas between, got {','.join(map(str, shape))}")
    net = type(message)()
    net.CopyFrom(message)
    for layer in net.layer:
        if layer.type in DATA_TYPES:
            shapes = [shape, *_label_shapes(layer, shape)]
            layer.type = "Input"
            for i, _ in enumerate(layer.top):
                layer.input_param.shape.add().dim.extend(shapes[i] if i < len(shapes) else shape[:1])
    return net


def _label_shapes(layer: Any, shape: Sequence[int]) -> list[Shape]:
    """The shapes of a data layer's labels, where they are not (shape[0],)."""
    if layer.type == "AnnotatedData":
        return [(1, 1, shape[0], TRUTH_COLUMNS)]
    if layer.type not in ("DenseImageData", "ImageSegData"):
        return []
    factor = max(layer.dense_image_data_param.label_divide_factor, 1)
    return [(shape[0], 1, *(n // factor for n in shape[2:])), (shape[0], 1, 1, 2)]


def _short(n: float) -> str:
    """1234567 as 1.23M."""
    for size, mark in MARKS:
        if n >= size:
            return f"{n / size:.3g}{mark}"
    return f"{n:g}"


N_IMAGES = {"host": 4, "device": 32}
WIDTH, SIDE = 256, 28  # channels, and pixels of an image's side
N_TRIES = 5


def measured_peak(kernels: Backend, dtype: np.dtype) -> float:
    """GFLOP/s of a 3x3 convolution of many channels in that type, computed by its definition; the fastest of a few
    tries."""
    shape = (N_IMAGES[kernels.PLACE], WIDTH, SIDE, SIDE)
    spec = ConvSpec(shape, WIDTH, (3, 3), (1, 1), (1, 1), (1, 1), bias=False, dtype=dtype, direct=True)
    plan, on_device = kernels.convolution(spec), kernels.PLACE == "device"
    x, y = (kernels.to_device(np.ones(prod(shape), dtype)) for _ in range(2))
    w = kernels.to_device(np.ones(spec.weight_shape, dtype if on_device or dtype.kind == "f" else np.float32))
    seconds = []
    for _ in range(N_TRIES):
        kernels.synchronize()
        started = time.perf_counter()
        plan.forward(x, w, None, y)
        kernels.synchronize()
        seconds.append(time.perf_counter() - started)
    return 2 * prod(shape) * prod(spec.weight_shape[1:]) / min(seconds) / 1e9


def speed_lines(net: Net, forward: Mapping[int, float], backward: Mapping[int, float], peak: float) -> list[str]:
    """A line for each layer that computes matrix products: GFLOP/s, at two operations a multiply-add, and share of the
    peak.

    Args:
        forward, backward: seconds of one pass of each layer, by its index.
        peak: GFLOP/s.
    """
    counts, lines = products(net), []
    for index, node in enumerate(net.nodes):
        speeds = [(way, 2 * n / 1e9 / seconds[index]) for way, n, seconds in zip(
            ("forward", "backward"), counts.get(node.name, (0, 0)), (forward, backward), strict=True)
            if n and seconds.get(index)]
        ways = [f"{way}: {gflops:.1f} GFLOP/s, {gflops / peak:.0%} of the peak." for way, gflops in speeds]
        if ways:
            lines.append("\t".join([f"{node.name:>10}", *ways]))
    return lines


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
