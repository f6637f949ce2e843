"""Converters of rarer layer types to lines of a PyTorch module."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scaffe.export.torch_code import Code, number
from scaffe.export.torch_converters import CONVERTERS, converts
from scaffe.nets.net_layer import Node

EXPRESSIONS: dict[str, Callable[[str, Any], str]] = {
    "Sigmoid": lambda x, p: f"torch.sigmoid({x})",
    "TanH": lambda x, p: f"torch.tanh({x})",
    "AbsVal": lambda x, p: f"{x}.abs()",
    "BNLL": lambda x, p: f"F.softplus({x})",
    "ELU": lambda x, p: f"F.elu({x}, {number(p.elu_param.alpha)})",
    "Softmax": lambda x, p: f"torch.softmax({x}, {p.softmax_param.axis})",
    "ReLU6": lambda x, p: f"F.relu6({x})",
    "Clip": lambda x, p: f"{x}.clamp({number(p.clip_param.min)}, {number(p.clip_param.max)})",
    "Swish": lambda x, p: f"{x} * torch.sigmoid({number(p.swish_param.beta)} * {x})",
    "Threshold": lambda x, p: f"({x} > {number(p.threshold_param.threshold)}).to({x}.dtype)",
    "Power": lambda x, p: _to_power(_shifted(x, p.power_param), p.power_param.power),
    "Exp": lambda x, p: f"torch.exp({_times(_shifted(x, p.exp_param), _logarithm(p.exp_param))})",
    "Log": lambda x, p: _times(f"torch.log({_shifted(x, p.log_param)})", 1 / _logarithm(p.log_param))}


def _enter(kind: str, expression: Callable[[str, Any], str]) -> None:
    @converts(kind)
    def convert(code: Code, node: Node) -> None:
        code.write(node, expression(code.bottoms(node)[0], node.param))


for each, of_each in EXPRESSIONS.items():
    _enter(each, of_each)


def _shifted(x: str, p: Any) -> str:
    """shift + scale x."""
    scaled = _times(x, p.scale)
    return f"({number(p.shift)} + {scaled})" if p.shift else scaled


def _times(x: str, factor: float) -> str:
    return x if factor == 1 else f"{number(factor)} * {x}"


def _to_power(x: str, power: float) -> str:
    return x if power == 1 else f"({x}) ** {number(power)}"


def _logarithm(p: Any) -> float:
    return 1.0 if p.base == -1 else math.log(p.base)


@converts("Crop")
def crop(code: Code, node: Node) -> None:
    """A slice of the second bottom's shape."""
    axis, ndim = node.bottoms[0].axis(node.param.crop_param.axis), node.bottoms[0].ndim
    offsets = list(node.param.crop_param.offset) or [0]
    offsets *= (ndim - axis) // len(offsets)
    places = [f"{offset}:{offset + n}" for offset, n in zip(offsets, node.tops[0].shape[axis:], strict=True)]
    code.write(node, f"{code.bottoms(node)[0]}[{', '.join([*[':'] * axis, *places])}]")


@converts("Tile")
def tile(code: Code, node: Node) -> None:
    """repeat along one axis."""
    repeats = [1] * node.bottoms[0].ndim
    repeats[node.bottoms[0].axis(node.param.tile_param.axis)] = node.param.tile_param.tiles
    code.write(node, f"{code.bottoms(node)[0]}.repeat({', '.join(map(str, repeats))})")


@converts("Permute")
def permute(code: Code, node: Node) -> None:
    """permute; axes that are not named follow in their order."""
    given = list(node.param.permute_param.order)
    order = given + [axis for axis in range(node.bottoms[0].ndim) if axis not in given]
    code.write(node, f"{code.bottoms(node)[0]}.permute({', '.join(map(str, order))})")


@converts("ShuffleChannel")
def shuffle_channel(code: Code, node: Node) -> None:
    """channel_shuffle."""
    code.write(node, f"F.channel_shuffle({code.bottoms(node)[0]}, {node.param.shuffle_channel_param.group})")


@converts("Reduction")
def reduction(code: Code, node: Node) -> None:
    """A sum of the axes from ``axis`` on, times coeff."""
    p, bottom, x = node.param.reduction_param, node.bottoms[0], code.bottoms(node)[0]
    axes = tuple(range(bottom.axis(p.axis), bottom.ndim))
    ways = {p.SUM: f"{x}.sum({axes})", p.ASUM: f"{x}.abs().sum({axes})", p.SUMSQ: f"{x}.square().sum({axes})",
            p.MEAN: f"{x}.mean({axes})"}
    code.write(node, _times(ways[p.operation], p.coeff))


@converts("Embed")
def embed(code: Code, node: Node) -> None:
    """nn.Embedding, plus the bias."""
    table, *bias = code.values(node)
    made = code.module(node, f"nn.Embedding({table.shape[0]}, {table.shape[1]})", weight=table)
    more = f" + {code.parameter(node, 'bias', bias[0])}" if bias else ""
    code.write(node, f"{made}({code.bottoms(node)[0]}.long()){more}")


@converts("ArgMax")
def arg_max(code: Code, node: Node) -> None:
    """topk along an axis: places, or values; without an axis places of whole items, with values where asked."""
    p, bottom, x = node.param.argmax_param, node.bottoms[0], code.bottoms(node)[0]
    if p.HasField("axis"):
        part = "values" if p.out_max_val else f"indices.to({x}.dtype)"
        code.write(node, f"torch.topk({x}, {p.top_k}, {bottom.axis(p.axis)}).{part}")
        return
    flat = f"{x}.flatten(1)"
    places = f"torch.topk({flat}, {p.top_k}).indices.to({x}.dtype)"
    both = f"torch.stack([{places}, torch.topk({flat}, {p.top_k}).values], 1)" if p.out_max_val else places
    code.write(node, f"{both}.reshape({x}.shape[0], {', '.join(map(str, node.tops[0].shape[1:]))})")


@converts("MVN")
def mvn(code: Code, node: Node) -> None:
    """Minus the mean, over the deviation."""
    p, x = node.param.mvn_param, code.bottoms(node)[0]
    axes = (1, 2, 3) if p.across_channels else (2, 3)
    centred = f"{x} - {x}.mean({axes}, keepdim=True)"
    if not p.normalize_variance:
        code.write(node, centred)
        return
    code.write(node, f"({centred}) / ({x}.std({axes}, correction=0, keepdim=True) + {number(p.eps)})")


@converts("Normalize")
def normalize(code: Code, node: Node) -> None:
    """Over the L2 norm, times the scales."""
    p, ndim, x = node.param.norm_param, node.bottoms[0].ndim, code.bottoms(node)[0]
    axes = tuple(range(1, ndim)) if p.across_spatial else (1,)
    scales = code.values(node)[0].reshape(1, -1, *[1] * (ndim - 2))
    norm = f"({x}.square().sum({axes}, keepdim=True) + {number(p.eps)}).sqrt()"
    code.write(node, f"{x} / {norm} * {code.parameter(node, 'scale', scales)}")


@converts("Axpy")
def axpy(code: Code, node: Node) -> None:
    """a x + y, a factor a channel."""
    factors, x, y = code.bottoms(node)
    n, channels = node.bottoms[1].shape[:2]
    shape = ", ".join(map(str, (f"{x}.shape[0]", channels, *[1] * (node.bottoms[1].ndim - 2))))
    code.write(node, f"{factors}.reshape({shape}) * {x} + {y}")


@converts("Interp")
def interp(code: Code, node: Node) -> None:
    """The two matrices of bilinear weights, of rows and of columns."""
    rows, columns = map(code.on_host, vars(node.layer)["weights"])
    code.write(node, f"{code.buffer(node, 'rows', rows)} @ {code.bottoms(node)[0]} "
                     f"@ {code.buffer(node, 'columns', columns.T)}")


__all__ = ["CONVERTERS"]
