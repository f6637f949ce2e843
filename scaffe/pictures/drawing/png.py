"""A picture as PNG, drawn by OpenCV."""

from __future__ import annotations

import numpy as np

from scaffe.data.records.decode import opencv
from scaffe.errors import UserError
from scaffe.pictures.drawing.layout import Point
from scaffe.pictures.drawing.picture import LINE_HEIGHT, Picture

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
            cv2.line(canvas, _whole(start), _whole(end), GREY, 1, cv2.LINE_AA)
        cv2.arrowedLine(canvas, _whole(path[-2]), _whole(path[-1]), GREY, 1, cv2.LINE_AA, 0, 0.12)
        text(label, (path[-2][0] + path[-1][0]) / 2, (path[-2][1] + path[-1][1]) / 2, GREY)
    for box, (x, y), (width, height) in picture.boxes:
        corners = _whole((x - width / 2, y - height / 2)), _whole((x + width / 2, y + height / 2))
        cv2.rectangle(canvas, *corners, _bgr(box.colour), -1)
        cv2.rectangle(canvas, *corners, BLACK, 1, cv2.LINE_AA)
        for i, line in enumerate(box.lines):
            text(line, x, y + (i - (len(box.lines) - 1) / 2) * LINE_HEIGHT, BLACK)
    return bytes(cv2.imencode(".png", canvas)[1])


def _whole(point: Point) -> tuple[int, int]:
    return round(point[0]), round(point[1])


def _bgr(colour: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(colour[1:])
    return blue, green, red
