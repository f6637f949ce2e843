"""Rewrites a net for one rank: sharded layers, redistributions between them, and each parameter's part; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scaffe.nets.net_layer import Portion
from scaffe.training.partition import sharding as s
from scaffe.training.partition.planner.image_shares import ELEMENTWISE
from scaffe.training.partition.planner.shapes import splits_classes
from scaffe.training.partition.planner.windows import Windows, window_of, without_padding

EVERYTHING = slice(None)
Columns = Callable[[int], slice]
"""A length → the part of it that the rank has."""
Found = list[tuple[Portion, Any]]
"""A portion of each parameter, with the filler of the whole; None where the parameter is filled already."""

LEARNED = ("InnerProduct", "Convolution", "Deconvolution", "LocalConvolution", "Scale", "Bias", "PReLU", "BatchNorm",
           "Embed")
"""The types whose parameters can be split."""


def portions(layer: Any, kind: str, length: int, shapes: Sequence[tuple[int, ...]], columns: Columns) -> Found:
    """The portions of a layer's parameters. Returns one entry a parameter; none where all parameters are whole.

    Args:
        length: of the whole bottom along the axis that is cut; any number where it is not.
        shapes: of the parameters that the rank has.
    """
    if layer.type == "InnerProduct":
        p = layer.inner_product_param
        return _of_product(p, kind, length, shapes, columns) if kind in (s.OUTPUTS, s.INPUTS) else []
    if layer.type in ("Convolution", "Deconvolution") and kind in (s.OUTPUTS, s.BY_CHANNELS):
        return _of_filters(layer, kind, length, shapes, columns)
    if layer.type == "LocalConvolution" and (window := window_of(layer, kind)) is not None:
        p, n_rows = layer.local_convolution_param, window.outputs(length)
        return [(_cut(shape, 0, n_rows, columns), filler)
                for shape, filler in zip(shapes, (p.weight_filler, p.bias_filler), strict=False)]
    if kind == s.BY_CHANNELS and layer.type in _PER_CHANNEL:
        fillers = _PER_CHANNEL[layer.type](layer)
        return [(_cut(shape, 0, length, columns) if shape and i < 2 else Portion(shape, (EVERYTHING,) * len(shape)),
                 filler) for i, (shape, filler) in enumerate(zip(shapes, fillers, strict=False))]
    return []


def _of_product(p: Any, kind: str, length: int, shapes: Sequence[tuple[int, ...]], columns: Columns) -> Found:
    n_inputs = length if kind == s.INPUTS else shapes[0][0 if p.transpose else 1]
    outputs = columns(p.num_output) if kind == s.OUTPUTS else EVERYTHING
    inputs = columns(n_inputs) if kind == s.INPUTS else EVERYTHING
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
    elif kind == s.OUTPUTS:
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


MOVE = "Move"
"""The type of the layers between."""


@dataclass
class BlobLayout:
    """The layout of one blob while layers are rewritten. ``how``: in rows, in columns, or whole."""

    name: str
    how: str


@dataclass
class Rewritten:
    """One rank's net.

    Attributes:
        redistributions: name of a layer between → (how its bottom lies, how its top lies).
        windows: name of a layer between that exchanges or crops halos, and of the layer with the windows → these.
    """

    message: Any
    shardings: dict[str, str] = field(default_factory=dict)
    redistributions: dict[str, tuple[str, str]] = field(default_factory=dict)
    windows: dict[str, Windows] = field(default_factory=dict)


def rewrite(message: Any, shardings: Mapping[str, str], is_training: bool) -> Rewritten:
    """The message of a rank's net.

    Where nets are trained, what is not split lies in rows: every rank has its own images. In tests all ranks of a
    replica read the same batch: what is not split lies whole.

    Args:
        message: a NetParameter with Split layers, as ``graph.prepare`` makes it; left as it is.
        shardings: layer name → kind in training; other layers are replicated, in tests they follow their bottoms.
    """
    made = Rewritten(type(message)())
    made.message.CopyFrom(message)
    del made.message.layer[:]
    common = s.ROWS if is_training else s.WHOLE
    lying: dict[str, BlobLayout] = {}
    for original in message.layer:
        bottoms = [lying.get(name, BlobLayout(name, common)) for name in original.bottom]
        kind = (shardings.get(original.name, s.REPLICATED) if is_training else
                _sharding_in_tests(original, bottoms, shardings))
        sharding, layer = s.sharding_of(original.type, kind), type(original)()
        layer.CopyFrom(original)
        for i, (name, bottom) in enumerate(zip(original.bottom, bottoms, strict=True)):
            wanted = common if sharding.need(i) == s.ROWS else sharding.need(i)
            for needed in s.redistribution_steps(bottom.how, wanted, common):
                _move(made, original, f"{original.name}_{i}_{needed[1]}", bottom, needed[1])
            layer.bottom[i] = bottom.name
            lying[name] = bottom
        made.shardings[layer.name] = kind
        _name_tops(layer, original, common if sharding.gives == s.ROWS else sharding.gives, lying)
        _add(made, layer, window_of(original, kind))
    return made


def _add(made: Rewritten, layer: Any, window: Windows | None) -> None:
    """Add a layer; where its windows reach over borders, with what brings halos, and takes them off again."""
    if window is None:
        made.message.layer.append(layer)
        return
    cut, name, tops = window.cut, layer.name, list(layer.top)
    bottom = BlobLayout(layer.bottom[0], cut)
    _move(made, layer, f"{name}_{s.HALO}", bottom, s.HALO, window)
    layer.bottom[0] = bottom.name
    made.windows[name] = window
    if window.brings_padding:
        without_padding(layer)
    if not window.crops:
        made.message.layer.append(layer)
        return
    wide, between = f"{tops[0]}_{name}_wide", f"{name}_own"
    layer.top[0] = wide
    made.message.layer.append(layer)
    made.message.layer.append(type(layer)(name=between, type=MOVE, bottom=[wide], top=tops, phase=layer.phase))
    made.redistributions[between], made.windows[between] = (s.HALO, cut), window


def _sharding_in_tests(layer: Any, bottoms: list[BlobLayout], shardings: Mapping[str, str]) -> str:
    """That of training where parameters are split, or the bottoms lie so; others follow bottoms that lie in columns."""
    kind = shardings.get(layer.name, s.REPLICATED)
    if s.sharding_of(layer.type, kind).splits_parameters and layer.type in LEARNED:
        return kind
    if kind in s.COMMON_LAYOUT and all(bottom.how == s.COMMON_LAYOUT[kind] for bottom in bottoms):
        return kind
    if splits_classes(layer) and bottoms[0].how == s.COLUMNS:
        return s.CLASSES
    follows = layer.type in ELEMENTWISE and all(bottom.how == s.COLUMNS for bottom in bottoms)
    return s.BY_COLUMNS if follows else s.REPLICATED


def _move(made: Rewritten, reader: Any, name: str, bottom: BlobLayout, needed: str,
          window: Windows | None = None) -> None:
    """Add a layer between in front of the reader's bottom; ``bottom`` says then how that lies."""
    top = f"{bottom.name}_{name}"
    made.message.layer.append(type(reader)(name=name, type=MOVE, bottom=[bottom.name], top=[top], phase=reader.phase))
    made.redistributions[name] = (bottom.how, needed)
    if window is not None:
        made.windows[name] = window
    bottom.name, bottom.how = top, needed


def _name_tops(layer: Any, original: Any, how: str, lying: dict[str, BlobLayout]) -> None:
    """Write down how the tops lie; a layer in place stays in place where its bottom has moved."""
    for i, name in enumerate(original.top):
        if i < len(original.bottom) and original.bottom[i] == name:
            layer.top[i] = layer.bottom[i]
        lying[name] = BlobLayout(layer.top[i], how)
