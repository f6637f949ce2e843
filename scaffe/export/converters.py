"""Converters of layer types to ONNX operators, with which a runtime gives Caffe's numbers of the TEST phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.export.graph import Graph
from scaffe.export.registry import Converter, Converters
from scaffe.export.windows import concat_axis, spatial, window
from scaffe.nets.net_layer import Node

CONVERTERS = Converters()
converts = CONVERTERS.of


def _simple(operator: str, attributes: Callable[[Any], dict[str, Any]] = lambda param: {}) -> Converter:
    def convert(graph: Graph, node: Node) -> None:
        graph.add(operator, graph.bottoms(node), graph.top(node), **attributes(node.param))

    return convert


CONVERTERS.update({
    "Sigmoid": _simple("Sigmoid"), "TanH": _simple("Tanh"), "AbsVal": _simple("Abs"), "BNLL": _simple("Softplus"),
    "ELU": _simple("Elu", lambda param: {"alpha": param.elu_param.alpha}),
    "Softmax": _simple("Softmax", lambda param: {"axis": param.softmax_param.axis}),
    "Concat": _simple("Concat", lambda param: {"axis": concat_axis(param.concat_param)})})


@converts("Input")
def inputs(graph: Graph, node: Node) -> None:
    """The graph's inputs."""
    for name in node.top_names:
        graph.alias(name, name)


@converts("Dropout")
def dropout(graph: Graph, node: Node) -> None:
    """The bottom, multiplied if the layer scales in testing."""
    p = node.param.dropout_param
    if p.scale_train:
        same(graph, node)
    else:
        factor = graph.constant(np.float32(1 - p.dropout_ratio))
        graph.add("Mul", [*graph.bottoms(node), factor], graph.top(node))


@converts("Split")
def same(graph: Graph, node: Node) -> None:
    """Every top is the bottom."""
    tensor = graph.bottoms(node)[0]
    for name in node.top_names:
        graph.alias(name, tensor)


@converts("Silence")
def nothing(graph: Graph, node: Node) -> None:
    """No operator."""


@converts("ReLU")
def relu(graph: Graph, node: Node) -> None:
    """Relu, or LeakyRelu for a slope."""
    slope = node.param.relu_param.negative_slope
    operator, attributes = ("LeakyRelu", {"alpha": slope}) if slope else ("Relu", {})
    graph.add(operator, graph.bottoms(node), graph.top(node), **attributes)


@converts("PReLU")
def prelu(graph: Graph, node: Node) -> None:
    """PRelu with a slope a channel, or one."""
    slopes = node.layer.blobs[0].data.reshape(-1, *[1] * (node.bottoms[0].ndim - 2))
    graph.add("PRelu", [*graph.bottoms(node), graph.constant(slopes)], graph.top(node))


@converts("Convolution", "Deconvolution", "DepthwiseConvolution", "ConvolutionDepthwise")
def convolution(graph: Graph, node: Node) -> None:
    """Conv or ConvTranspose; each bottom has its top."""
    p, weight = node.param.convolution_param, node.layer.blobs[0].data
    n_axes = weight.ndim - 2
    if p.axis != 1:
        raise UserError(f"layer {node.name!r}: ONNX convolutions have axis 1, this one has {p.axis}")
    pads = spatial(p, "pad", 0, n_axes)
    group = node.bottoms[0].shape[1] if "epthwise" in node.param.type else p.group
    constants = [graph.constant(blob.data) for blob in node.layer.blobs]
    operator = "ConvTranspose" if node.param.type == "Deconvolution" else "Conv"
    for bottom, top in zip(graph.bottoms(node), node.top_names, strict=False):
        graph.add(operator, [bottom, *constants], graph.define(top), kernel_shape=list(weight.shape[2:]), group=group,
                  strides=spatial(p, "stride", 1, n_axes), dilations=spatial(p, "dilation", 1, n_axes),
                  pads=pads + pads)


@converts("InnerProduct")
def inner_product(graph: Graph, node: Node) -> None:
    """Flatten and Gemm, in the top's shape."""
    p, blobs = node.param.inner_product_param, node.layer.blobs
    flat = graph.add("Flatten", graph.bottoms(node), axis=node.bottoms[0].axis(p.axis))
    operands = [flat, *(graph.constant(blob.data) for blob in blobs)]
    top, shape = graph.top(node), node.tops[0].shape
    if len(shape) == 2:
        graph.add("Gemm", operands, top, transB=int(not p.transpose))
    else:
        product = graph.add("Gemm", operands, transB=int(not p.transpose))
        graph.add("Reshape", [product, graph.constant(shape, np.int64)], top)


@converts("Pooling")
def pooling(graph: Graph, node: Node) -> None:
    """MaxPool or AveragePool, padded at the end as far as Caffe's last window reaches."""
    p = node.param.pooling_param
    if p.pool not in (p.MAX, p.AVE) or len(node.tops) > 1:
        raise UserError(f"layer {node.name!r}: only MAX without a mask and AVE pooling have an ONNX form")
    bottom, top = graph.bottoms(node)[0], graph.top(node)
    if p.global_pooling:
        graph.add("GlobalMaxPool" if p.pool == p.MAX else "GlobalAveragePool", [bottom], top)
        return
    kernel, stride, pad = (window(p, name) for name in ("kernel", "stride", "pad"))
    ends = [max(0, (out - 1) * s + k - n - 2 * d) for out, s, k, n, d in
            zip(node.tops[0].shape[2:], stride, kernel, node.bottoms[0].shape[2:], pad, strict=False)]
    common = {"kernel_shape": kernel, "strides": stride}
    if p.pool == p.MAX:
        graph.add("MaxPool", [bottom], top, pads=[*pad, *(d + e for d, e in zip(pad, ends, strict=False))], **common)
        return
    if any(pad):  # averages count the padding, but not what lies behind it
        bottom = graph.add("Pad", [bottom, graph.constant([0, 0, *pad, 0, 0, *pad], np.int64)])
    graph.add("AveragePool", [bottom], top, pads=[0, 0, *ends], **common)


@converts("LRN")
def lrn(graph: Graph, node: Node) -> None:
    """LRN across channels; within them, x / (1 + alpha mean(x^2)) ^ beta, the mean with the padding counted."""
    p = node.param.lrn_param
    if p.norm_region != p.ACROSS_CHANNELS:
        x, pad = graph.bottoms(node)[0], (p.local_size - 1) // 2
        mean = graph.add("AveragePool", [graph.add("Mul", [x, x])], kernel_shape=[p.local_size] * 2, pads=[pad] * 4,
                         count_include_pad=1)
        scaled = graph.add("Add", [graph.add("Mul", [mean, graph.constant(np.float32(p.alpha))]),
                                   graph.constant(np.float32(1))])
        graph.add("Mul", [x, graph.add("Pow", [scaled, graph.constant(np.float32(-p.beta))])], graph.top(node))
        return
    graph.add("LRN", graph.bottoms(node), graph.top(node), size=p.local_size, alpha=p.alpha, beta=p.beta,
              bias=p.k)


@converts("BatchNorm")
def batch_norm(graph: Graph, node: Node) -> None:
    """BatchNormalization by the running statistics."""
    mean, variance, factor = (blob.data.astype(np.float64) for blob in node.layer.blobs)
    scale = 1 / factor[0] if factor[0] else 0.0
    numbers = (np.ones_like(mean), np.zeros_like(mean), mean * scale, variance * scale)
    graph.add("BatchNormalization", [*graph.bottoms(node), *map(graph.constant, numbers)],
              graph.top(node), epsilon=node.param.batch_norm_param.eps)


@converts("Scale", "Bias")
def affine(graph: Graph, node: Node) -> None:
    """Mul and Add of learned numbers, or of a second bottom."""
    is_scale = node.param.type == "Scale"
    p = node.param.scale_param if is_scale else node.param.bias_param
    x, *given = graph.bottoms(node)
    axis, ndim = node.bottoms[0].axis(p.axis), node.bottoms[0].ndim

    def spread(shape: tuple[int, ...]) -> list[int]:
        return [1] * axis + list(shape) + [1] * (ndim - axis - len(shape))

    factors = [graph.constant(blob.data.reshape(spread(blob.shape))) for blob in node.layer.blobs]
    if given:
        shape = graph.constant(spread(node.bottoms[1].shape), np.int64)
        factors.insert(0, graph.add("Reshape", [given[0], shape]))
    operators = ["Mul", "Add"] if is_scale else ["Add"]
    for operator, factor in zip(operators, factors[:-1], strict=False):
        x = graph.add(operator, [x, factor])
    graph.add(operators[len(factors) - 1], [x, factors[-1]], graph.top(node))


@converts("Eltwise")
def eltwise(graph: Graph, node: Node) -> None:
    """Mul, Sum or Max of all bottoms."""
    p, terms = node.param.eltwise_param, graph.bottoms(node)
    if p.operation == p.SUM and p.coeff:
        terms = [graph.add("Mul", [t, graph.constant(np.float32(c))]) for t, c in zip(terms, p.coeff, strict=False)]
    while p.operation == p.PROD and len(terms) > 2:
        terms = [graph.add("Mul", terms[:2]), *terms[2:]]
    graph.add({p.PROD: "Mul", p.SUM: "Sum", p.MAX: "Max"}[p.operation], terms, graph.top(node))


@converts("Power")
def power(graph: Graph, node: Node) -> None:
    """(shift + scale x) ^ power."""
    p = node.param.power_param
    x = graph.add("Mul", [*graph.bottoms(node), graph.constant(np.float32(p.scale))])
    x = graph.add("Add", [x, graph.constant(np.float32(p.shift))])
    graph.add("Pow", [x, graph.constant(np.float32(p.power))], graph.top(node))


@converts("Flatten", "Reshape")
def reshape(graph: Graph, node: Node) -> None:
    """Reshape to the top's shape."""
    shape = graph.constant(node.tops[0].shape, np.int64)
    graph.add("Reshape", [*graph.bottoms(node), shape], graph.top(node))


@converts("Slice")
def slices(graph: Graph, node: Node) -> None:
    """A Slice a top."""
    p, start = node.param.slice_param, 0
    axis = node.bottoms[0].axis(p.slice_dim if p.HasField("slice_dim") else p.axis)
    bottom = graph.bottoms(node)[0]
    for name, top in zip(node.top_names, node.tops, strict=False):
        end = start + top.shape[axis]
        places = [graph.constant([n], np.int64) for n in (start, end, axis)]
        graph.add("Slice", [bottom, *places], graph.define(name))
        start = end
