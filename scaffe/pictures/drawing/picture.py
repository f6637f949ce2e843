"""A laid-out net as a list of shapes with text, ready for any writer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scaffe.pictures.drawing.boxes import Arrow, Box, net_boxes
from scaffe.pictures.drawing.layout import Layout, Point, lay_out

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
