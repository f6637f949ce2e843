"""Which part of each parameter a rank has of a layer that is split, and what fills the whole of it; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scaffe.nets.parts import Portion
from scaffe.training.partition.kinds import BY_CHANNELS, INPUTS, OUTPUTS
from scaffe.training.partition.planner.windows import window_of

EVERYTHING = slice(None)
Columns = Callable[[int], slice]
"""A length → the part of it that the rank has."""
Found = list[tuple[Portion, Any]]
"""A portion of each parameter, with the filler of the whole; None where the parameter is filled already."""

LEARNED = ("InnerProduct", "Convolution", "Deconvolution", "LocalConvolution", "Scale", "Bias", "PReLU", "BatchNorm",
           "Embed")
"""The types whose parameters can be split."""


def portions(layer: Any, kind: str, length: int, shapes: Sequence[tuple[int, ...]], columns: Columns) -> Found:
    """The portions of a layer's parameters.

    Args:
        layer: the whole layer's message.
        kind: how it is shared.
        length: of the whole bottom along the axis that is cut; any number where it is not.
        shapes: of the parameters that the rank has.
        columns: the rank's part of an axis.

    Returns:
        one entry a parameter; none where all parameters are whole.
    """
    if layer.type == "InnerProduct":
        p = layer.inner_product_param
        return _of_product(p, kind, length, shapes, columns) if kind in (OUTPUTS, INPUTS) else []
    if layer.type in ("Convolution", "Deconvolution") and kind in (OUTPUTS, BY_CHANNELS):
        return _of_filters(layer, kind, length, shapes, columns)
    if layer.type == "LocalConvolution" and (window := window_of(layer, kind)) is not None:
        p, n_rows = layer.local_convolution_param, window.outputs(length)
        return [(_cut(shape, 0, n_rows, columns), filler)
                for shape, filler in zip(shapes, (p.weight_filler, p.bias_filler), strict=False)]
    if kind == BY_CHANNELS and layer.type in _PER_CHANNEL:
        fillers = _PER_CHANNEL[layer.type](layer)
        return [(_cut(shape, 0, length, columns) if shape and i < 2 else Portion(shape, (EVERYTHING,) * len(shape)),
                 filler) for i, (shape, filler) in enumerate(zip(shapes, fillers, strict=False))]
    return []


def _of_product(p: Any, kind: str, length: int, shapes: Sequence[tuple[int, ...]], columns: Columns) -> Found:
    n_inputs = length if kind == INPUTS else shapes[0][0 if p.transpose else 1]
    outputs = columns(p.num_output) if kind == OUTPUTS else EVERYTHING
    inputs = columns(n_inputs) if kind == INPUTS else EVERYTHING
    weights = Portion((p.num_output, n_inputs), (outputs, inputs))
    if p.transpose:
        weights = Portion((n_inputs, p.num_output), (inputs, outputs))
    bias = Portion((p.num_output,), (outputs,))
    return [(weights, p.weight_filler), (bias, p.bias_filler)][:len(shapes)]


def _of_filters(layer: Any, kind: str, length: int, shapes: Sequence[tuple[int, ...]], columns: Columns) -> Found:
    """Weights are (outputs, inputs / group, ...), a deconvolution's (inputs, outputs / group, ...)."""
    p = layer.convolution_param
    if layer.type == "Convolution":
        weights = _cut(shapes[0], 0, p.num_output, columns)
    elif kind == OUTPUTS:
        weights = _cut(shapes[0], 1, p.num_output, columns)
    else:
        weights = _cut(shapes[0], 0, length, columns)
    bias = _cut((0,), 0, p.num_output, columns)
    return [(weights, p.weight_filler), (bias, p.bias_filler)][:len(shapes)]


def _cut(shape: Sequence[int], axis: int, length: int, columns: Columns) -> Portion:
    """Of a parameter that is cut along one axis, which is ``length`` long; the others are as in ``shape``."""
    index = tuple(columns(length) if i == axis else EVERYTHING for i in range(len(shape)))
    return Portion((*shape[:axis], length, *shape[axis + 1:]), index)


def _given(p: Any) -> Any:
    """A filler that need not be given."""
    return p.filler if p.HasField("filler") else None


_PER_CHANNEL: dict[str, Callable[[Any], Sequence[Any]]] = {
    "Scale": lambda layer: (_given(layer.scale_param), layer.scale_param.bias_filler),
    "Bias": lambda layer: (layer.bias_param.filler,),
    "PReLU": lambda layer: (_given(layer.prelu_param),),
    "BatchNorm": lambda layer: (None, None, None)}
"""Type of a layer with a number a channel → what fills its parameters."""
