"""A laid-out trace as PNG, drawn by OpenCV."""

from __future__ import annotations

import numpy as np

from scaffe.data.records.decode import opencv
from scaffe.errors import UserError
from scaffe.pictures.timeline_picture import Bar, Picture

MAX_HEIGHT = 30000
BLACK, FONT_SCALE, SHIFT = (0, 0, 0), 0.4, 4  # OpenCV takes coordinates in units of 2**-SHIFT pixels


def to_png(picture: Picture) -> bytes:
    """The PNG file's content.

    Raises:
        UserError: OpenCV is not installed, or the picture has too many rows for it; SVG has neither limit.
    """
    cv2 = opencv()
    if picture.height > MAX_HEIGHT:
        raise UserError(f"the picture is {picture.width} x {picture.height} pixels; draw an .svg")
    canvas = np.full((picture.height, picture.width, 3), 255, np.uint8)
    for bar in picture.bars:
        red, green, blue = bytes.fromhex(bar.colour[1:])
        cv2.rectangle(canvas, *_corners(bar), (blue, green, red), -1, cv2.LINE_8, SHIFT)
    for x, y, text, ends in picture.labels:
        (width, _), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, FONT_SCALE, 1)
        place = (round(x - width if ends else x), round(y))
        cv2.putText(canvas, text, place, cv2.FONT_HERSHEY_SIMPLEX, FONT_SCALE, BLACK, 1, cv2.LINE_AA)
    return bytes(cv2.imencode(".png", canvas)[1])


def _corners(bar: Bar) -> tuple[tuple[int, int], tuple[int, int]]:
    """Opposite corners, both inside the bar; a bar narrower than a pixel still fills one."""
    left, top = round(bar.x * 2**SHIFT), round(bar.y * 2**SHIFT)
    right = max(round((bar.x + bar.width - 1) * 2**SHIFT), left)
    return (left, top), (right, round((bar.y + bar.height - 1) * 2**SHIFT))
