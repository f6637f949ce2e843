"""From a NetParameter to boxes and arrows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scaffe.errors import UserError
from scaffe.proto import caffe_pb2

COLOURS = {"Convolution": "#ff8a80", "Deconvolution": "#ff8a80", "Pooling": "#ffb74d", "InnerProduct": "#ce93d8"}
LAYER, IN_PLACE, BLOB = "#90b4f0", "#a5d6a7", "#e0e0e0"
PHASES = {caffe_pb2.TRAIN: "TRAIN", caffe_pb2.TEST: "TEST"}
LEARNING = ("Convolution", "Deconvolution", "InnerProduct")


@dataclass(frozen=True)
class Box:
    """One box: its lines of text and its fill colour."""

    lines: tuple[str, ...]
    colour: str


@dataclass(frozen=True)
class Arrow:
    """An arrow from box to box, by index, with the blob's name."""

    start: int
    end: int
    label: str


def net_boxes(net: Any, phase: int | None = None, display_lrm: bool = False) -> tuple[list[Box], list[Arrow]]:
    """The boxes and arrows of a net (today's form); with a phase, of the layers that phase has.

    Two data layers with the same tops, one of each phase, have one box. Blobs that come from outside, or that nobody
    takes, have boxes of their own. An arrow says its blob's name where that is not the name of the layer that makes it.

    Raises:
        ValueError: a layer with both include and exclude rules.
    """
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    makers: dict[str, list[int]] = {}
    open_tops: dict[str, int] = {}
    for name in net.input:
        makers[name] = [_add(boxes, Box((name,), BLOB))]
    layers = [layer for layer in net.layer if phase is None or has_phase(layer, phase)]
    for layers_of_box in _boxed(layers):
        layer = layers_of_box[0]
        box = _add(boxes, Box(_lines(layers_of_box, display_lrm), _colour(layer)))
        for name in layer.bottom:
            if name not in makers:
                makers[name] = [_add(boxes, Box((name,), BLOB))]
            arrows += [Arrow(maker, box, _label(name, boxes[maker])) for maker in makers[name]]
            open_tops.pop(name, None)
        for name in layer.top:
            others = [] if name in layer.bottom else makers.get(name, [])  # of the other phase
            makers[name] = [*others, box]
            open_tops[name] = box
    for name, box in open_tops.items():
        arrows.append(Arrow(box, _add(boxes, Box((name,), BLOB)), ""))
    return boxes, arrows


def _boxed(layers: Sequence[Any]) -> list[list[Any]]:
    """The layers of each box: one, or a source of samples for TRAIN and one for TEST."""
    boxed: list[list[Any]] = []
    sources: dict[tuple[str, ...], list[Any]] = {}
    for layer in layers:
        tops = tuple(layer.top)
        others = sources.get(tops, [])
        if not layer.bottom and len(others) == 1 and {_only_phase(others[0]), _only_phase(layer)} == set(PHASES):
            others.append(layer)
            continue
        boxed.append([layer])
        if not layer.bottom:
            sources[tops] = boxed[-1]
    return boxed


def _only_phase(layer: Any) -> int | None:
    """The one phase that a layer has; None for both or none."""
    phases = [phase for phase in PHASES if has_phase(layer, phase)]
    return phases[0] if len(phases) == 1 else None


def _lines(layers: Sequence[Any], display_lrm: bool) -> tuple[str, ...]:
    """The lines of a box: those of its layer, or the common name or both, and a line for each phase."""
    if len(layers) == 1:
        return layer_lines(layers[0], display_lrm)
    names = dict.fromkeys(layer.name for layer in layers)
    return (" / ".join(names), *(f"{PHASES[_only_phase(layer) or 0]}: {' '.join(layer_lines(layer)[1:])}"
                                 for layer in layers))


def _label(blob: str, box: Box) -> str:
    """A blob's name for an arrow from the box; empty where the box says it, or wrote the blob in place."""
    return "" if blob == box.lines[0] or box.colour == IN_PLACE else blob


def layer_lines(layer: Any, display_lrm: bool = False) -> tuple[str, ...]:
    """The lines of a layer's box: name, type, geometry, and with display_lrm the learning rates' multipliers."""
    lines = [layer.name, layer.type]
    if layer.type == "Pooling":
        p = layer.pooling_param
        lines[1] = f"{layer.type} {caffe_pb2.PoolingParameter.PoolMethod.Name(p.pool)}"
        lines.append(_geometry(_pair(p.kernel_size, p.kernel_h, p.kernel_w), _pair(p.stride, p.stride_h, p.stride_w),
                               _pair(p.pad, p.pad_h, p.pad_w)))
    elif layer.type in ("Convolution", "Deconvolution"):
        c = layer.convolution_param
        lines[1] += f" {c.num_output}"
        lines.append(_geometry(_dims(c.kernel_size, c.kernel_h, c.kernel_w, 1),
                               _dims(c.stride, c.stride_h, c.stride_w, 1), _dims(c.pad, c.pad_h, c.pad_w, 0)))
    elif layer.type == "InnerProduct":
        lines[1] += f" {layer.inner_product_param.num_output}"
    elif layer.type == "Data":
        lines[1] += f" batch {layer.data_param.batch_size}"
    if display_lrm and layer.type in LEARNING:
        rates = [spec.lr_mult for spec in layer.param]
        lines.append("lr mult " + ", ".join(f"{rate:g}" for rate in (*rates, 1, 1)[:max(2, len(rates))]))
    return tuple(lines)


def _geometry(kernel: str, stride: str, pad: str) -> str:
    return f"kernel {kernel}" + (f" stride {stride}" if stride != "1" else "") + (f" pad {pad}" if pad != "0" else "")


def _pair(both: int, height: int, width: int) -> str:
    return f"{height}x{width}" if height != width else str(height or both)


def _dims(given: Sequence[int], height: int, width: int, default: int) -> str:
    if height or width:
        return _pair(0, height, width)
    return str(given[0]) if len(set(given)) == 1 else "x".join(map(str, given)) or str(default)


def _colour(layer: Any) -> str:
    in_place = len(layer.bottom) == 1 and list(layer.bottom) == list(layer.top)
    return IN_PLACE if in_place else COLOURS.get(layer.type, LAYER)


def has_phase(layer: Any, phase: int) -> bool:
    """Whether a layer belongs to a phase. Raises ValueError for both include and exclude rules."""
    if layer.include and layer.exclude:
        raise UserError(f"layer {layer.name!r}: give include rules or exclude rules, not both")
    if layer.include:
        return any(not rule.HasField("phase") or rule.phase == phase for rule in layer.include)
    return not any(rule.HasField("phase") and rule.phase == phase for rule in layer.exclude)


def _add(boxes: list[Box], box: Box) -> int:
    boxes.append(box)
    return len(boxes) - 1
