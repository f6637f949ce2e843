"""Random augmentation of DetectNet's images and boxes (NVIDIA/caffe, detectnet_transform_layer.cpp)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from scaffe.errors import LayerError

SMALL = float(np.finfo(np.float32).eps)
LEAST_DESATURATION = 1 / 255
Size = tuple[int, int]  # width, height


@dataclass(frozen=True)
class Selection:
    """The changes to one image: degrees that the hue turns by, a factor on the saturation, flip from left to right,
    width and height in pixels to resize to, degrees of rotation, and the column and row of the result's first pixel;
    outside the image the result is 0. They are applied in the order hue, saturation, flip, size, rotation, crop."""

    size: Size
    hue: float = 0.0
    saturation: float = 1.0
    flip: bool = False
    rotation: float = 0.0
    crop: tuple[int, int] = (0, 0)

    @property
    def rotates(self) -> bool:
        """Whether the image is rotated noticeably."""
        return abs(self.rotation) > SMALL


def select(original: Size, wanted: Size, p: Any, chance: Callable[[], float]) -> Selection:
    """Draw the changes to a training image by a DetectNetAugmentationParameter message. Sizes are (width, height) of
    the image and of the result; ``chance`` gives numbers in [0, 1]."""
    chosen = Selection(original)
    if chance() <= p.hue_rotation_prob:
        chosen = replace(chosen, hue=float(np.clip((chance() - 0.5) * 2 * p.hue_rotation, -180, 180)))
    if chance() <= p.desaturation_prob:
        chosen = replace(chosen, saturation=1 - chance() * p.desaturation_max)
    chosen = replace(chosen, flip=chance() <= p.flip_prob)
    if chance() <= p.scale_prob:
        factor = p.scale_min + (p.scale_max - p.scale_min) * chance()
        chosen = replace(chosen, size=(_rounded(original[0] * factor), _rounded(original[1] * factor)))
    if chance() <= p.rotation_prob:
        chosen = replace(chosen, rotation=(chance() - 0.5) * 2 * p.max_rotate_degree)
    whole = rotated_size(chosen.size, chosen.rotation) if chosen.rotates else chosen.size
    if chance() <= p.crop_prob:
        places, shifts = (chance(), chance()), (int(p.shift_x), int(p.shift_y))
    else:
        places, shifts = (0.5, 0.5), (0, 0)
    x, y = (_rounded(place * (n - m + shift) - shift // 2)
            for place, n, m, shift in zip(places, whole, wanted, shifts, strict=True))
    return replace(chosen, crop=(x, y))


def change_image(image: np.ndarray, mean: np.ndarray, chosen: Selection, wanted: Size) -> np.ndarray:
    """Change an image, float32 (height, width, 3), 0 to 255, blue first, to one of ``wanted`` width and height. The
    mean, which broadcasts to the image, is subtracted after the colours have changed."""
    cv2 = opencv()
    pixels = image / np.float32(255)
    if abs(chosen.hue) > SMALL or chosen.saturation < 1 - LEAST_DESATURATION:
        colours = cv2.cvtColor(pixels, cv2.COLOR_BGR2HSV)
        colours[:, :, 0] += np.float32(chosen.hue)
        colours[:, :, 1] *= np.float32(chosen.saturation if chosen.saturation < 1 - LEAST_DESATURATION else 1)
        pixels = cv2.cvtColor(colours, cv2.COLOR_HSV2BGR)
    pixels = (pixels - mean / np.float32(255)).astype(np.float32)
    if chosen.flip:
        pixels = np.ascontiguousarray(pixels[:, ::-1])
    if pixels.shape[1::-1] != chosen.size:
        pixels = cv2.resize(pixels, chosen.size, interpolation=cv2.INTER_CUBIC)
    if chosen.rotates:
        size = rotated_size(chosen.size, chosen.rotation)
        pixels = cv2.warpAffine(pixels, rotation_matrix(chosen.size, chosen.rotation), size,
                                dst=np.zeros((size[1], size[0], 3), np.float32), flags=cv2.INTER_LINEAR,
                                borderMode=cv2.BORDER_TRANSPARENT)
    return cropped(pixels, chosen.crop, wanted) * np.float32(255)


def cropped(image: np.ndarray, crop: tuple[int, int], wanted: Size) -> np.ndarray:
    """The part of an image from ``crop`` on, (column, row); 0 outside the image."""
    out = np.zeros((wanted[1], wanted[0], image.shape[2]), image.dtype)
    (x, y), (height, width) = crop, image.shape[:2]
    left, right = max(x, 0), min(x + wanted[0], width)
    top, bottom = max(y, 0), min(y + wanted[1], height)
    if left < right and top < bottom:
        out[top - y : bottom - y, left - x : right - x] = image[top:bottom, left:right]
    return out


def change_boxes(boxes: np.ndarray, original: Size, chosen: Selection) -> np.ndarray:
    """Apply an image's changes to its boxes; rotated boxes keep their size. Rows begin with x, y, width, height."""
    out = boxes.copy()
    if chosen.flip:
        out[:, 0] = original[0] - out[:, 0] - out[:, 2] - 1
    if chosen.size != original:
        out[:, :4] *= np.tile(np.array(chosen.size) / original, 2)
    if chosen.rotates:
        half = out[:, 2:4] / 2
        matrix = rotation_matrix(chosen.size, chosen.rotation)
        out[:, :2] = (out[:, :2] + half) @ matrix[:, :2].T + matrix[:, 2] - half
    out[:, :2] -= chosen.crop
    return out


def rotated_size(size: Size, degrees: float) -> Size:
    """Width and height of the smallest upright box, in whole pixels, around a rotated one."""
    low, high = _bounds((size[0] // 2, size[1] // 2), size, degrees)
    return int(high[0] - low[0] + 1), int(high[1] - low[1] + 1)


def rotation_matrix(size: Size, degrees: float) -> np.ndarray:
    """The affine map, (2, 3), that rotates an image about its centre and moves it into view."""
    cv2, centre = opencv(), np.array(size) / 2
    low, _ = _bounds(centre, size, degrees)
    before = cv2.boxPoints((tuple(centre), size, 0.0))
    after = cv2.boxPoints((tuple(centre - low), size, degrees))
    matrix: np.ndarray = cv2.getAffineTransform(before[:3], after[:3])
    return matrix


def _bounds(centre: Any, size: Size, degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest whole pixels of a rotated box's corners."""
    points = opencv().boxPoints(((float(centre[0]), float(centre[1])), size, degrees))
    return np.floor(points.min(0)), np.ceil(points.max(0))


def _rounded(number: float) -> int:
    """C's round: halves away from 0."""
    return int(np.copysign(np.floor(abs(number) + 0.5), number))


def opencv() -> ModuleType:
    """The OpenCV module. Raises LayerError if it is not installed."""
    try:
        import cv2
    except ImportError:
        raise LayerError("images are changed by OpenCV: pip install 'opencv-python-headless<5'") from None
    return cv2
