"""Converters of layer types to lines of a PyTorch module that give Caffe's numbers of the TEST phase."""

from __future__ import annotations

from math import ceil, floor
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.export.registry import Converters
from scaffe.export.torch_code import Code, number, shortest
from scaffe.export.windows import concat_axis, spatial, window
from scaffe.nets.net_layer import Node

CONVERTERS = Converters()
converts = CONVERTERS.of


@converts("Input", "Silence")
def nothing(code: Code, node: Node) -> None:
    """Inputs are arguments of forward; Silence has no top."""


@converts("Split")
def split(code: Code, node: Node) -> None:
    """Every top is the bottom."""
    for name in node.top_names:
        code.alias(name, code.bottoms(node)[0])


@converts("Dropout")
def dropout(code: Code, node: Node) -> None:
    """nn.Dropout, which does nothing in eval mode; or a factor, where the layer scales in testing."""
    p, x = node.param.dropout_param, code.bottoms(node)[0]
    if p.scale_train:
        code.write(node, f"{code.module(node, f'nn.Dropout({number(p.dropout_ratio)})')}({x})")
    else:
        code.write(node, f"{x} * {number(1 - shortest(p.dropout_ratio))}")


@converts("ReLU")
def relu(code: Code, node: Node) -> None:
    """relu, or leaky_relu for a slope."""
    slope, x = node.param.relu_param.negative_slope, code.bottoms(node)[0]
    code.write(node, f"F.leaky_relu({x}, {number(slope)})" if slope else f"F.relu({x})")


@converts("PReLU")
def prelu(code: Code, node: Node) -> None:
    """nn.PReLU with a slope a channel, or one."""
    slopes = code.values(node)[0].reshape(-1)
    made = code.module(node, f"nn.PReLU({slopes.size})", weight=slopes)
    code.write(node, f"{made}({code.bottoms(node)[0]})")


@converts("Convolution", "Deconvolution", "DepthwiseConvolution", "ConvolutionDepthwise")
def convolution(code: Code, node: Node) -> None:
    """nn.Conv or nn.ConvTranspose of one, two or three axes; each bottom has its top."""
    p, weights = node.param.convolution_param, code.values(node)
    weight = weights[0]
    n_axes = weight.ndim - 2
    if p.axis != 1 or not 1 <= n_axes <= 3:
        raise UserError(f"layer {node.name!r}: PyTorch's convolutions have axis 1 and 1 to 3 axes behind it, this one "
                        f"has axis {p.axis} and {n_axes}")
    n_in, n_out = node.bottoms[0].shape[1], node.tops[0].shape[1]
    options = {"stride": spatial(p, "stride", 1, n_axes), "padding": spatial(p, "pad", 0, n_axes),
               "dilation": spatial(p, "dilation", 1, n_axes)}
    said = [_short(weight.shape[2:]), *(f"{name}={_short(values)}" for name, values in options.items()
                                        if set(values) != {0 if name == "padding" else 1})]
    group = n_in if "epthwise" in node.param.type else p.group
    said += [f"groups={group}"] if group != 1 else []
    state = dict(zip(("weight", "bias"), weights, strict=False))
    said += [] if "bias" in state else ["bias=False"]
    kind = "ConvTranspose" if node.param.type == "Deconvolution" else "Conv"
    made = code.module(node, f"nn.{kind}{n_axes}d({n_in}, {n_out}, {', '.join(said)})", **state)
    for bottom, top in zip(code.bottoms(node), node.top_names, strict=False):
        code.lines.append(f"{code.define(top)} = {made}({bottom})")


def _short(values: Any) -> str:
    """One number where all are the same."""
    numbers = [int(value) for value in values]
    return str(numbers[0]) if len(set(numbers)) == 1 else str(tuple(numbers))


@converts("InnerProduct")
def inner_product(code: Code, node: Node) -> None:
    """nn.Linear of what follows the axis."""
    p, (weight, *bias) = node.param.inner_product_param, code.values(node)
    weight = weight.T if p.transpose else weight
    state = dict(zip(("weight", "bias"), (weight, *bias), strict=False))
    n_out, n_in = weight.shape
    made = code.module(node, f"nn.Linear({n_in}, {n_out}{'' if bias else ', bias=False'})", **state)
    axis, x = node.bottoms[0].axis(p.axis), code.bottoms(node)[0]
    code.write(node, f"{made}({x if axis == node.bottoms[0].ndim - 1 else f'{x}.flatten({axis})'})")


@converts("Pooling")
def pooling(code: Code, node: Node) -> None:
    """max_pool2d or avg_pool2d, whose windows are Caffe's."""
    p, x = node.param.pooling_param, code.bottoms(node)[0]
    if p.pool not in (p.MAX, p.AVE) or len(node.tops) > 1 or node.bottoms[0].ndim != 4:
        raise UserError(f"layer {node.name!r}: only MAX without a mask and AVE pooling of images have a PyTorch form")
    is_max = p.pool == p.MAX
    if p.global_pooling:
        code.write(node, f"{x}.{'amax' if is_max else 'mean'}((2, 3), keepdim=True)")
        return
    kernel, stride, pad = (window(p, name) for name in ("kernel", "stride", "pad"))
    sides = list(node.bottoms[0].shape[2:])
    if any(2 * d > k for d, k in zip(pad, kernel, strict=True)):  # more than PyTorch takes
        value = ", value=-torch.inf" if is_max else ""
        x, sides, pad = f"F.pad({x}, ({pad[1]}, {pad[1]}, {pad[0]}, {pad[0]}){value})", [
            n + 2 * d for n, d in zip(sides, pad, strict=True)], [0, 0]
    up = next((up for up in (True, False) if node.tops[0].shape[2:] == tuple(
        _n_windows(*numbers, up) for numbers in zip(sides, kernel, stride, pad, strict=True))), None)
    if up is None:
        raise UserError(f"layer {node.name!r}: PyTorch has no pooling from {sides} to {node.tops[0].shape[2:]}")
    options = [_short(kernel), _short(stride), *([f"padding={_short(pad)}"] if any(pad) else []),
               *(["ceil_mode=True"] if up else [])]
    code.write(node, f"F.{'max' if is_max else 'avg'}_pool2d({x}, {', '.join(options)})")


def _n_windows(side: int, kernel: int, stride: int, pad: int, up: bool) -> int:
    """PyTorch's number of windows along an axis."""
    n = (ceil if up else floor)((side + 2 * pad - kernel) / stride) + 1
    return n - 1 if up and (n - 1) * stride >= side + pad else n


@converts("LRN")
def lrn(code: Code, node: Node) -> None:
    """local_response_norm, or its formula within channels, where the padding counts."""
    p, x = node.param.lrn_param, code.bottoms(node)[0]
    if p.norm_region == p.ACROSS_CHANNELS:
        code.write(node, f"F.local_response_norm({x}, {p.local_size}, {number(p.alpha)}, {number(p.beta)}, "
                         f"{number(p.k)})")
    else:
        mean = f"F.avg_pool2d({x}.square(), {p.local_size}, 1, padding={(p.local_size - 1) // 2})"
        code.write(node, f"{x} * (1 + {number(p.alpha)} * {mean}) ** -{number(p.beta)}")


@converts("BatchNorm")
def batch_norm(code: Code, node: Node) -> None:
    """nn.BatchNorm; the factors are those of a Scale layer behind it, or none."""
    mean, variance, factor = (values.astype(np.float64) for values in code.values(node))
    scale = 1 / factor[0] if factor[0] else 0.0
    p, n_axes = node.param.batch_norm_param, max(node.bottoms[0].ndim - 2, 1)
    options = f"{mean.size}, eps={number(p.eps)}, momentum={number(1 - shortest(p.moving_average_fraction))}"
    made = code.module(node, f"nn.BatchNorm{n_axes}d({options}, affine=False)", running_mean=mean * scale,
                       running_var=variance * scale, num_batches_tracked=np.zeros((), np.int64))
    code.write(node, f"{made}({code.bottoms(node)[0]})")
    code.norms[node.top_names[0]] = made


@converts("Scale", "Bias")
def affine(code: Code, node: Node) -> None:
    """The factors of the batch norm before it, or learned numbers, or a second bottom."""
    if _is_of_norm(code, node):
        made = code.norms[node.bottom_names[0]]
        line = next(line for line in code.made if line.startswith(f"{made} = "))
        code.replace(f"{made} = ", line.replace(", affine=False", ""))
        numbers = dict(zip(("weight", "bias"), code.values(node), strict=True))
        code.tensors.update({f"{made.removeprefix('self.')}.{key}": value for key, value in numbers.items()})
        code.alias(node.top_names[0], code.bottoms(node)[0])
        return
    is_scale = node.param.type == "Scale"
    p = node.param.scale_param if is_scale else node.param.bias_param
    bottom, (x, *given) = node.bottoms[0], code.bottoms(node)
    axis = bottom.axis(p.axis)
    factors = [f"{given[0]}.reshape({_spread(node.bottoms[1].shape, axis, bottom.ndim)})"] if given else []
    for what, values in zip(("weight", "bias")[len(factors) if is_scale else 1:], code.values(node), strict=False):
        factors.append(code.parameter(node, what, values.reshape(_spread(values.shape, axis, bottom.ndim))))
    signs = ["*", "+"] if is_scale else ["+"]
    code.write(node, f"{x} {' '.join(f'{sign} {factor}' for sign, factor in zip(signs, factors, strict=False))}")


def _is_of_norm(code: Code, node: Node) -> bool:
    """Whether a layer only scales what a batch norm wrote, channel by channel, and nobody else reads that."""
    return (node.param.type == "Scale" and node.bottom_names[0] in code.norms and len(node.layer.blobs) == 2
            and all(blob.shape == node.bottoms[0].shape[1:2] for blob in node.layer.blobs)
            and node.bottoms[0].axis(node.param.scale_param.axis) == 1)


def _spread(shape: tuple[int, ...], axis: int, ndim: int) -> tuple[int, ...]:
    """A shape that meets the axes from ``axis`` on."""
    return (*[1] * axis, *shape, *[1] * (ndim - axis - len(shape)))


@converts("Eltwise")
def eltwise(code: Code, node: Node) -> None:
    """The sum, product or greatest of all bottoms."""
    p, terms = node.param.eltwise_param, code.bottoms(node)
    if p.operation == p.MAX:
        expression = terms[0]
        for term in terms[1:]:
            expression = f"torch.maximum({expression}, {term})"
    elif p.operation == p.PROD:
        expression = " * ".join(terms)
    else:
        factors = list(p.coeff) or [1] * len(terms)
        expression = " + ".join(term if factor == 1 else f"{number(factor)} * {term}"
                                for factor, term in zip(factors, terms, strict=False))
    code.write(node, expression)


@converts("Concat")
def concat(code: Code, node: Node) -> None:
    """cat."""
    code.write(node, f"torch.cat([{', '.join(code.bottoms(node))}], {concat_axis(node.param.concat_param)})")


@converts("Slice")
def slices(code: Code, node: Node) -> None:
    """split."""
    p, x = node.param.slice_param, code.bottoms(node)[0]
    axis = node.bottoms[0].axis(p.slice_dim if p.HasField("slice_dim") else p.axis)
    lengths = [top.shape[axis] for top in node.tops]
    names = ", ".join(code.define(name) for name in node.top_names)
    code.lines.append(f"{names}{',' if len(lengths) == 1 else ''} = torch.split({x}, {lengths}, {axis})")


@converts("Flatten", "Reshape")
def reshape(code: Code, node: Node) -> None:
    """reshape to the top's shape, for any number of items where the first axis stays."""
    before, after, x = node.bottoms[0].shape, node.tops[0].shape, code.bottoms(node)[0]
    keeps_items = before[:1] == after[:1] != ()
    if keeps_items and len(after) == 2:
        code.write(node, f"{x}.flatten(1)")
        return
    lengths = [f"{x}.shape[0]", *map(str, after[1:])] if keeps_items else list(map(str, after))
    code.write(node, f"{x}.reshape({', '.join(lengths) or '()'})")
