"""Boxes and arrows laid out, and drawn as SVG or PNG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scaffe import svg
from scaffe.errors import UserError
from scaffe.pictures.layout import GAP_ALONG, Point, lay_out
from scaffe.pictures.net_boxes import Arrow, Box, net_boxes

LINE_HEIGHT, PADDING, MARGIN, BOLD = 16.0, 9.0, 20.0, 1.12  # a bold text's width, beside a plain one's
LABEL_SIZE, LABEL_GAP = 11.0, 7.0  # from a label to its line, and to the box that it leaves
DARK, FAINT = "#333", "#555"
HEAD = svg.element("defs", svg.element("marker", svg.element("path", class_="head", d="M0 0 8 4 0 8z", fill=FAINT),
                   id="head", viewBox="0 0 8 8", refX=8, refY=4, markerWidth=7, markerHeight=7, orient="auto"))


@dataclass(frozen=True)
class Picture:
    """A drawing, in pixels.

    Attributes:
        boxes: each with its centre, and its width and height.
        arrows: each as the data of an SVG path from an edge to an edge.
        labels: of arrows, each with where its text begins.
        width, height: of the whole.
    """

    boxes: list[tuple[Box, Point, Point]]
    arrows: list[str]
    labels: list[tuple[str, Point]]
    width: float
    height: float


def net_picture(net: Any, rankdir: str = "LR", phase: int | None = None, display_lrm: bool = False) -> Picture:
    """Lay a net out. Raises ValueError for an unknown rankdir."""
    return picture_of(*net_boxes(net, phase, display_lrm), rankdir)


def picture_of(boxes: list[Box], arrows: list[Arrow], rankdir: str) -> Picture:
    """Lay boxes out. Arrows of one label leave a box together, beside those of another. Raises ValueError for an
    unknown rankdir."""
    is_vertical = rankdir in ("TB", "BT")
    labels: dict[int, list[str]] = {}
    for arrow in arrows:
        mine = labels.setdefault(arrow.start, [])
        mine += [arrow.label] if arrow.label not in mine else []
    extents = [_extent(box, labels.get(i, []), is_vertical) for i, box in enumerate(boxes)]
    room = [GAP_ALONG + _stub(arrow.label, is_vertical) for arrow in arrows]
    layout = lay_out(extents, [(a.start, a.end) for a in arrows], rankdir, room)
    paths, named = [], {}
    for arrow, way in zip(arrows, layout.paths, strict=True):
        port = _port(labels[arrow.start], arrow.label, is_vertical)
        path = _between(way, port, extents[arrow.start], extents[arrow.end], is_vertical)
        paths.append(_bent(path, _stub(arrow.label, is_vertical), is_vertical))
        named[arrow.start, arrow.label] = _beside(path, arrow.label, is_vertical)
    placed = [(box, _shift(centre), extent) for box, centre, extent in zip(boxes, layout.centres, extents, strict=True)]
    texts = [(label, place) for (_, label), place in named.items() if label]
    return Picture(placed, paths, texts, layout.width + 2 * MARGIN, layout.height + 2 * MARGIN)


def _extent(box: Box, labels: Sequence[str], is_vertical: bool) -> Point:
    """Width and height of a box, with room for the labels of the arrows that leave it."""
    widths = [svg.text_width(line) * (BOLD if i == 0 else 1) for i, line in enumerate(box.lines)]
    width, height = max(widths) + 2 * PADDING, len(box.lines) * LINE_HEIGHT + PADDING
    needed = _pitch(labels, is_vertical) * (len(labels) + (is_vertical and any(labels)))
    return (max(width, needed), height) if is_vertical else (width, max(height, needed))


def _pitch(labels: Sequence[str], is_vertical: bool) -> float:
    """From one label's arrows to those of the next, across the flow."""
    return max(map(_label_width, labels), default=0.0) if is_vertical else LINE_HEIGHT


def _label_width(label: str) -> float:
    return svg.text_width(label, LABEL_SIZE) + 3 * LABEL_GAP if label else 0.0


def _stub(label: str, is_vertical: bool) -> float:
    """How far an arrow goes straight on beside its label."""
    return (LINE_HEIGHT if is_vertical else _label_width(label)) if label else 0.0


def _port(labels: Sequence[str], label: str, is_vertical: bool) -> float:
    """How far from its box's middle an arrow begins."""
    return (labels.index(label) - (len(labels) - 1) / 2) * _pitch(labels, is_vertical)


def _between(path: list[Point], port: float, start: Point, end: Point, is_vertical: bool) -> list[Point]:
    """The way points with the ends moved from the boxes' centres to their edges, and the start to its port."""
    along = 1 if is_vertical else 0
    sign = 1 if path[-1][along] >= path[0][along] else -1
    first, last = list(path[0]), list(path[-1])
    first[along] += sign * start[along] / 2
    first[1 - along] += port
    last[along] -= sign * end[along] / 2
    return [_shift(p) for p in ((first[0], first[1]), *path[1:-1], (last[0], last[1]))]


def _beside(path: list[Point], label: str, is_vertical: bool) -> Point:
    """Where a label's text begins: to the right of the line under its box, or above the line beside it."""
    (x, y), (next_x, next_y) = path[:2]
    if is_vertical:
        return x + LABEL_GAP, y + (LABEL_SIZE + LABEL_GAP if next_y >= y else -LABEL_GAP)
    width = svg.text_width(label, LABEL_SIZE)
    return x + (LABEL_GAP if next_x >= x else -LABEL_GAP - width), y - LABEL_GAP / 2


def _shift(point: Point) -> Point:
    return point[0] + MARGIN, point[1] + MARGIN


def _bent(path: list[Point], stub: float, is_vertical: bool) -> str:
    """The path data of an arrow that leaves and enters boxes at right angles, straight on at first for ``stub``."""
    along = 1 if is_vertical else 0
    pieces, here = [f"M{_pair(path[0])}"], path[0]
    if stub:
        on = here[along] + (stub if path[1][along] >= here[along] else -stub)
        here = (here[0], on) if is_vertical else (on, here[1])
        pieces.append(f"L{_pair(here)}")
    for there in path[1:]:
        middle = (here[along] + there[along]) / 2
        bends = ((here[0], middle), (there[0], middle)) if is_vertical else ((middle, here[1]), (middle, there[1]))
        is_straight = here[1 - along] == there[1 - along]
        pieces.append(f"L{_pair(there)}" if is_straight else f"C{_pair(bends[0])} {_pair(bends[1])} {_pair(there)}")
        here = there
    return " ".join(pieces)


def _pair(point: Point) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"


def to_svg(picture: Picture) -> bytes:
    """The SVG file's content."""
    return _document(picture).encode()


def to_png(picture: Picture) -> bytes:
    """The PNG file's content. Raises UserError as ``scaffe.svg.png``."""
    return svg.png(_document(picture), picture.width, picture.height, UserError)


def _document(picture: Picture) -> str:
    body = [HEAD]
    for path in picture.arrows:
        body.append(svg.element("path", class_="arrow", d=path, fill="none", stroke=FAINT,
                                marker_end="url(#head)"))
    body += [svg.on_ground(x, y, label, fill=FAINT, font_size=LABEL_SIZE) for label, (x, y) in picture.labels]
    for box, (x, y), (width, height) in picture.boxes:
        body.append(svg.rectangle(x - width / 2, y - height / 2, width, height, rx=4, fill=box.colour, stroke=DARK))
        top = y - (len(box.lines) - 1) * LINE_HEIGHT / 2 + 4
        weights: list[dict[str, str]] = [{"font_weight": "bold"}, *[{}] * len(box.lines)]
        body += [svg.text(x, top + i * LINE_HEIGHT, line, text_anchor="middle", **weight)
                 for i, (line, weight) in enumerate(zip(box.lines, weights, strict=False)) if line]
    return svg.document(picture.width, picture.height, body)
