"""Converters of rarer layer types to ONNX operators (opset 13)."""

from __future__ import annotations

import math

import numpy as np

from scaffe.export.converters import converts
from scaffe.export.graph import Graph
from scaffe.nets.net_layer import Node

SUM_OPERATORS = {"SUM": "ReduceSum", "ASUM": "ReduceL1", "SUMSQ": "ReduceSumSquare", "MEAN": "ReduceMean"}


def _number(graph: Graph, value: float) -> str:
    return graph.constant(np.float32(value))


@converts("Clip", "ReLU6")
def clip(graph: Graph, node: Node) -> None:
    """Clip."""
    low, high = (0, 6) if node.param.type == "ReLU6" else (node.param.clip_param.min, node.param.clip_param.max)
    graph.add("Clip", [graph.bottoms(node)[0], _number(graph, low), _number(graph, high)], graph.top(node))


@converts("Swish")
def swish(graph: Graph, node: Node) -> None:
    """x sigmoid(beta x)."""
    x = graph.bottoms(node)[0]
    gate = graph.add("Sigmoid", [graph.add("Mul", [x, _number(graph, node.param.swish_param.beta)])])
    graph.add("Mul", [x, gate], graph.top(node))


@converts("Threshold")
def threshold(graph: Graph, node: Node) -> None:
    """Greater, as 0 and 1."""
    above = graph.add("Greater", [graph.bottoms(node)[0], _number(graph, node.param.threshold_param.threshold)])
    graph.add("Cast", [above], graph.top(node), to=graph.onnx.TensorProto.FLOAT)


@converts("Exp")
def exp(graph: Graph, node: Node) -> None:
    """base ^ (shift + scale x), as e to a power."""
    p = node.param.exp_param
    factor = 1.0 if p.base == -1 else math.log(p.base)
    scaled = graph.add("Mul", [graph.bottoms(node)[0], _number(graph, factor * p.scale)])
    graph.add("Exp", [graph.add("Add", [scaled, _number(graph, factor * p.shift)])], graph.top(node))


@converts("Log")
def log(graph: Graph, node: Node) -> None:
    """The logarithm of shift + scale x."""
    p = node.param.log_param
    scaled = graph.add("Mul", [graph.bottoms(node)[0], _number(graph, p.scale)])
    natural = graph.add("Log", [graph.add("Add", [scaled, _number(graph, p.shift)])])
    factor = 1.0 if p.base == -1 else 1 / math.log(p.base)
    graph.add("Mul", [natural, _number(graph, factor)], graph.top(node))


@converts("Crop")
def crop(graph: Graph, node: Node) -> None:
    """Slice to the second bottom's shape."""
    axis, ndim = node.bottoms[0].axis(node.param.crop_param.axis), node.bottoms[0].ndim
    axes = list(range(axis, ndim))
    offsets = list(node.param.crop_param.offset) or [0]
    offsets *= len(axes) // len(offsets)
    ends = [offset + node.tops[0].shape[a] for offset, a in zip(offsets, axes, strict=False)]
    places = [graph.constant(numbers, np.int64) for numbers in (offsets, ends, axes)]
    graph.add("Slice", [graph.bottoms(node)[0], *places], graph.top(node))


@converts("Tile")
def tile(graph: Graph, node: Node) -> None:
    """Tile along one axis."""
    p = node.param.tile_param
    repeats = [1] * node.bottoms[0].ndim
    repeats[node.bottoms[0].axis(p.axis)] = p.tiles
    graph.add("Tile", [graph.bottoms(node)[0], graph.constant(repeats, np.int64)], graph.top(node))


@converts("Permute")
def permute(graph: Graph, node: Node) -> None:
    """Transpose; axes that are not named follow in their order."""
    given = list(node.param.permute_param.order)
    order = given + [axis for axis in range(node.bottoms[0].ndim) if axis not in given]
    graph.add("Transpose", graph.bottoms(node), graph.top(node), perm=order)


@converts("ShuffleChannel")
def shuffle_channel(graph: Graph, node: Node) -> None:
    """Channels as (group, rest), transposed."""
    n, channels, *space = node.bottoms[0].shape
    group = node.param.shuffle_channel_param.group
    apart = graph.constant([n, group, channels // group, *space], np.int64)
    split = graph.add("Reshape", [graph.bottoms(node)[0], apart])
    transposed = graph.add("Transpose", [split], perm=[0, 2, 1, *range(3, 3 + len(space))])
    graph.add("Reshape", [transposed, graph.constant([n, channels, *space], np.int64)], graph.top(node))


@converts("Reduction")
def reduction(graph: Graph, node: Node) -> None:
    """A sum of the axes from ``axis`` on, times coeff."""
    p = node.param.reduction_param
    operator = SUM_OPERATORS[p.ReductionOp.Name(p.operation)]
    bottom = node.bottoms[0]
    axes = list(range(bottom.axis(p.axis), bottom.ndim))
    if operator == "ReduceSum":  # its axes are an input since opset 13
        reduced = graph.add(operator, [graph.bottoms(node)[0], graph.constant(axes, np.int64)], keepdims=0)
    else:
        reduced = graph.add(operator, graph.bottoms(node), axes=axes, keepdims=0)
    graph.add("Mul", [reduced, _number(graph, p.coeff)], graph.top(node))


@converts("Embed")
def embed(graph: Graph, node: Node) -> None:
    """Gather of the table's rows, plus the bias."""
    table, *bias = (graph.constant(blob.data) for blob in node.layer.blobs)
    indices = graph.add("Cast", graph.bottoms(node), to=graph.onnx.TensorProto.INT64)
    if not bias:
        graph.add("Gather", [table, indices], graph.top(node))
        return
    graph.add("Add", [graph.add("Gather", [table, indices]), *bias], graph.top(node))


@converts("ArgMax")
def arg_max(graph: Graph, node: Node) -> None:
    """TopK along an axis: places, or values; without an axis places of whole items, with their values where asked."""
    p, bottom = node.param.argmax_param, node.bottoms[0]
    has_axis = p.HasField("axis")
    x = graph.bottoms(node)[0] if has_axis else graph.add("Flatten", graph.bottoms(node), axis=1)
    axis = bottom.axis(p.axis) if has_axis else 1
    found = graph.add("TopK", [x, graph.constant([p.top_k], np.int64)], axis=axis)
    values, places = f"{found}/0", graph.add("Cast", [f"{found}/1"], to=graph.onnx.TensorProto.FLOAT)
    if has_axis:
        graph.add("Identity", [values if p.out_max_val else places], graph.top(node))
        return
    found = graph.add("Concat", [places, values], axis=1) if p.out_max_val else places
    graph.add("Reshape", [found, graph.constant(node.tops[0].shape, np.int64)], graph.top(node))


@converts("MVN")
def mvn(graph: Graph, node: Node) -> None:
    """Minus the mean, over the deviation."""
    p = node.param.mvn_param
    axes = [1, 2, 3] if p.across_channels else [2, 3]
    x = graph.add("Reshape", [graph.bottoms(node)[0], graph.constant(node.tops[0].shape, np.int64)])
    centred_inputs = [x, graph.add("ReduceMean", [x], axes=axes)]
    if not p.normalize_variance:
        graph.add("Sub", centred_inputs, graph.top(node))
        return
    centred = graph.add("Sub", centred_inputs)
    variance = graph.add("ReduceMean", [graph.add("Mul", [centred, centred])], axes=axes)
    deviation = graph.add("Add", [graph.add("Sqrt", [variance]), _number(graph, p.eps)])
    graph.add("Div", [centred, deviation], graph.top(node))


@converts("Normalize")
def normalize(graph: Graph, node: Node) -> None:
    """Over the L2 norm, times the scales."""
    p, ndim, x = node.param.norm_param, node.bottoms[0].ndim, graph.bottoms(node)[0]
    axes = list(range(1, ndim)) if p.across_spatial else [1]
    squares = graph.add("ReduceSumSquare", [x], axes=axes)
    norm = graph.add("Sqrt", [graph.add("Add", [squares, _number(graph, p.eps)])])
    scales = node.layer.blobs[0].data.reshape(-1, *[1] * (ndim - 2))
    graph.add("Mul", [graph.add("Div", [x, norm]), graph.constant(scales)], graph.top(node))


@converts("Axpy")
def axpy(graph: Graph, node: Node) -> None:
    """a x + y, a factor a channel."""
    factors, x, y = graph.bottoms(node)
    n, channels = node.bottoms[1].shape[:2]
    shape = graph.constant([n, channels, *[1] * (node.bottoms[1].ndim - 2)], np.int64)
    product = graph.add("Mul", [x, graph.add("Reshape", [factors, shape])])
    graph.add("Add", [product, y], graph.top(node))


@converts("Interp")
def interp(graph: Graph, node: Node) -> None:
    """The two matrices of bilinear weights, of rows and of columns."""
    rows, columns = (np.asarray(weights) for weights in vars(node.layer)["weights"])
    resized = graph.add("MatMul", [graph.constant(rows), graph.bottoms(node)[0]])
    graph.add("MatMul", [resized, graph.constant(columns.T)], graph.top(node))
