"""Computes which part of an image a window takes and where it goes in the result (Caffe 1.0, WindowDataLayer)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Box = tuple[int, int, int, int]  # x1, y1, x2, y2
Single = np.float32  # Caffe computes this in single precision, which decides some roundings


@dataclass(frozen=True)
class Placement:
    """A window's part of the image and its place in the result.

    Attributes:
        rows, columns: first and one past the last row and column of the part of the image.
        height, width: pixels that the part is resized to.
        top, left: first row and column of the resized part in the result.
    """

    rows: tuple[int, int]
    columns: tuple[int, int]
    height: int
    width: int
    top: int = 0
    left: int = 0


def place(box: Box, image: tuple[int, int], side: int, pad: int = 0, square: bool = False,
          mirrored: bool = False) -> Placement:
    """Compute the placement of a window.

    Args:
        box: x1, y1, x2, y2 in pixels, all inside the window (x2 and y2 too).
        image: the image's height and width.
        side: side of the square result in pixels.
        pad: pixels of context around the window, counted in the result.
        square: take the smallest square around the window.
        mirrored: the part will be mirrored left to right, so padding changes sides.

    Returns:
        The placement. With ``pad`` or ``square`` the part ends at the image's edge; the rest of the result is padding.
    """
    x1, y1, x2, y2 = box
    if not pad and not square:
        return Placement((y1, y2 + 1), (x1, x2 + 1), side, side)
    x1, y1, x2, y2 = _expand(box, Single(side) / Single(side - 2 * pad), square)
    cut_left, cut_top = max(0, -x1), max(0, -y1)
    cut_right, cut_bottom = max(0, x2 - image[1] + 1), max(0, y2 - image[0] + 1)
    scale_x, scale_y = Single(side) / Single(x2 - x1 + 1), Single(side) / Single(y2 - y1 + 1)
    rows, columns = (y1 + cut_top, y2 - cut_bottom + 1), (x1 + cut_left, x2 - cut_right + 1)
    top = _round(Single(cut_top) * scale_y)
    left = _round(Single(cut_right if mirrored else cut_left) * scale_x)
    height = min(_round(Single(rows[1] - rows[0]) * scale_y), side - top)
    width = min(_round(Single(columns[1] - columns[0]) * scale_x), side - left)
    return Placement(rows, columns, height, width, top, left)


def _expand(box: Box, scale: np.float32, square: bool) -> Box:
    """The box, made square if asked, scaled about its centre."""
    x1, y1, x2, y2 = box
    half_height, half_width = Single((y2 - y1 + 1) / 2), Single((x2 - x1 + 1) / 2)
    center_x, center_y = Single(x1) + half_width, Single(y1) + half_height
    if square:
        half_height = half_width = max(half_height, half_width)
    return (_round(center_x - half_width * scale), _round(center_y - half_height * scale),
            _round(center_x + half_width * scale), _round(center_y + half_height * scale))


def _round(x: np.float32) -> int:
    """C's round: halves go away from zero."""
    return int(np.copysign(np.floor(abs(float(x)) + 0.5), x))
