"""From a NetParameter to boxes and arrows, laid out and written as SVG or, by OpenCV, as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.data.records.decode import opencv
from scaffe.errors import UserError
from scaffe.markup import escaped
from scaffe.pictures.layout import Layout, Point, lay_out
from scaffe.proto import caffe_pb2

COLOURS = {"Convolution": "#ff8a80", "Deconvolution": "#ff8a80", "Pooling": "#ffb74d", "InnerProduct": "#ce93d8"}
LAYER, IN_PLACE, BLOB = "#90b4f0", "#a5d6a7", "#e0e0e0"
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

    Blobs that come from outside, or that nobody takes, have boxes of their own.

    Raises:
        ValueError: a layer with both include and exclude rules.
    """
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    makers: dict[str, list[int]] = {}
    open_tops: dict[str, int] = {}
    for name in net.input:
        makers[name] = [_add(boxes, Box((name,), BLOB))]
    for layer in net.layer:
        if phase is not None and not has_phase(layer, phase):
            continue
        box = _add(boxes, Box(layer_lines(layer, display_lrm), _colour(layer)))
        for name in layer.bottom:
            if name not in makers:
                makers[name] = [_add(boxes, Box((name,), BLOB))]
            arrows += [Arrow(maker, box, name) for maker in makers[name]]
            open_tops.pop(name, None)
        for name in layer.top:
            others = [] if name in layer.bottom else makers.get(name, [])  # of the other phase
            makers[name] = [*others, box]
            open_tops[name] = box
    for name, box in open_tops.items():
        arrows.append(Arrow(box, _add(boxes, Box((name,), BLOB)), ""))
    return boxes, arrows


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


CHAR_WIDTH, LINE_HEIGHT, PADDING, MARGIN = 7.4, 16.0, 9.0, 20.0


@dataclass(frozen=True)
class Picture:
    """Boxes with their centre, width and height; arrows as way points with a label; the whole size in pixels."""

    boxes: list[tuple[Box, Point, Point]]
    arrows: list[tuple[list[Point], str]]
    width: float
    height: float


def net_picture(net: Any, rankdir: str = "LR", phase: int | None = None, display_lrm: bool = False) -> Picture:
    """Lay a net out. Raises ValueError for an unknown rankdir."""
    return picture_of(*net_boxes(net, phase, display_lrm), rankdir)


def picture_of(boxes: list[Box], arrows: list[Arrow], rankdir: str) -> Picture:
    """Lay boxes out. Raises ValueError for an unknown rankdir."""
    extents = [(max(map(len, box.lines)) * CHAR_WIDTH + 2 * PADDING, len(box.lines) * LINE_HEIGHT + PADDING)
               for box in boxes]
    layout = lay_out(extents, [(a.start, a.end) for a in arrows], rankdir)
    placed = [(box, _shift(centre), extent) for box, centre, extent in zip(boxes, layout.centres, extents, strict=True)]
    is_vertical = rankdir in ("TB", "BT")
    paths = [(_between(path, extents[a.start], extents[a.end], is_vertical), a.label)
             for a, path in zip(arrows, layout.paths, strict=True)]
    return Picture(placed, paths, *_whole(layout))


def _whole(layout: Layout) -> Point:
    return layout.width + 2 * MARGIN, layout.height + 2 * MARGIN


def _between(path: list[Point], start: Point, end: Point, is_vertical: bool) -> list[Point]:
    """The way points with the ends moved from the boxes' centres to their edges."""
    axis = 1 if is_vertical else 0
    sign = 1 if path[-1][axis] >= path[0][axis] else -1
    first, last = list(path[0]), list(path[-1])
    first[axis] += sign * start[axis] / 2
    last[axis] -= sign * end[axis] / 2
    return [_shift(p) for p in ((first[0], first[1]), *path[1:-1], (last[0], last[1]))]


def _shift(point: Point) -> Point:
    return point[0] + MARGIN, point[1] + MARGIN


HEAD = """<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}"
 font-family="monospace" font-size="12" text-anchor="middle">
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path class="head" d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>
<rect class="paper" width="100%" height="100%" fill="white"/>"""


def to_svg(picture: Picture) -> bytes:
    """The SVG file's content."""
    parts = [HEAD.format(picture.width, picture.height)]
    for path, label in picture.arrows:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in path)
        parts.append(f'<polyline class="arrow" points="{points}" fill="none" stroke="#555" marker-end="url(#head)"/>')
        (x0, y0), (x1, y1) = path[-2:]
        style = f' class="label" fill="#555" font-size="{CHAR_WIDTH + 2:.0f}"'
        parts.append(_text((x0 + x1) / 2, (y0 + y1) / 2 + 4, label, style))
    for box, (x, y), (width, height) in picture.boxes:
        parts.append(f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" '
                     f'height="{height:.1f}" rx="4" fill="{box.colour}" stroke="#333"/>')
        top = y - (len(box.lines) - 1) * LINE_HEIGHT / 2 + 4
        parts += [_text(x, top + i * LINE_HEIGHT, line) for i, line in enumerate(box.lines)]
    return "\n".join([*parts, "</svg>", ""]).encode()


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}>{escaped(text)}</text>' if text else ""


GREY, BLACK, FONT_SCALE, MAX_SIDE = (85, 85, 85), (20, 20, 20), 0.4, 30000


def to_png(picture: Picture) -> bytes:
    """The PNG file's content.

    Raises:
        UserError: OpenCV is not installed, or the picture is too large for it; SVG has neither limit.
    """
    cv2 = opencv()
    if max(picture.width, picture.height) > MAX_SIDE:
        raise UserError(f"the picture is {picture.width:.0f} x {picture.height:.0f} pixels; draw an .svg")
    canvas = np.full((int(picture.height), int(picture.width), 3), 255, np.uint8)

    def text(line: str, x: float, y: float, colour: tuple[int, int, int]) -> None:
        (width, height), _ = cv2.getTextSize(line, cv2.FONT_HERSHEY_SIMPLEX, FONT_SCALE, 1)
        place = (round(x - width / 2), round(y + height / 2))
        cv2.putText(canvas, line, place, cv2.FONT_HERSHEY_SIMPLEX, FONT_SCALE, colour, 1, cv2.LINE_AA)

    for path, label in picture.arrows:
        for start, end in zip(path, path[1:-1], strict=False):
            cv2.line(canvas, _rounded(start), _rounded(end), GREY, 1, cv2.LINE_AA)
        cv2.arrowedLine(canvas, _rounded(path[-2]), _rounded(path[-1]), GREY, 1, cv2.LINE_AA, 0, 0.12)
        text(label, (path[-2][0] + path[-1][0]) / 2, (path[-2][1] + path[-1][1]) / 2, GREY)
    for box, (x, y), (width, height) in picture.boxes:
        corners = _rounded((x - width / 2, y - height / 2)), _rounded((x + width / 2, y + height / 2))
        cv2.rectangle(canvas, *corners, tuple(bytes.fromhex(box.colour[1:])[::-1]), -1)
        cv2.rectangle(canvas, *corners, BLACK, 1, cv2.LINE_AA)
        for i, line in enumerate(box.lines):
            text(line, x, y + (i - (len(box.lines) - 1) / 2) * LINE_HEIGHT, BLACK)
    return bytes(cv2.imencode(".png", canvas)[1])


def _rounded(point: Point) -> tuple[int, int]:
    return round(point[0]), round(point[1])
