"""Resizes images and their boxes (weiliu89/caffe, im_transforms.cpp)."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.data.augment.objects import Objects
from scaffe.data.records.decode import MOST_PIXELS, opencv
from scaffe.errors import DataError

WARP, FIT_SMALL_SIZE, FIT_LARGE_SIZE_AND_PAD = 1, 2, 3  # ResizeParameter.Resize_mode
BORDERS = {1: "BORDER_CONSTANT", 2: "BORDER_REFLECT_101", 3: "BORDER_REPLICATE"}  # by ResizeParameter.Pad_mode
METHODS = {1: "INTER_LINEAR", 2: "INTER_AREA", 3: "INTER_NEAREST", 4: "INTER_CUBIC", 5: "INTER_LANCZOS4"}
Extent = tuple[int, int]  # height and width


def check_resize(p: Any) -> None:
    """Raise DataError if a ResizeParameter message has no size, or one that is too large."""
    if not p.height or not p.width or p.height * p.width > MOST_PIXELS:
        raise DataError(f"resize_param wants height and width above 0 and at most {MOST_PIXELS} pixels, "
                        f"got {p.height} x {p.width}")


def new_extent(p: Any, extent: Extent) -> Extent:
    """Height and width of an image after it is resized by a ResizeParameter message."""
    height, width = extent
    if p.resize_mode != FIT_SMALL_SIZE:
        return p.height, p.width
    aspect = np.float32(width) / np.float32(height)
    if aspect < np.float32(p.width) / np.float32(p.height):
        return max(1, int(np.float32(p.width) / aspect)), p.width
    return p.height, max(1, int(aspect * np.float32(p.height)))


def resize_image(p: Any, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Resize an image (height, width, channels); of several ``interp_mode`` one is drawn for each image.

    Raises:
        DataError: there are neither 1 ``pad_value`` nor one for each channel, or the result is beyond reason.
    """
    cv2, n_channels = opencv(), image.shape[2]
    method = getattr(cv2, METHODS[p.interp_mode[rng.integers(len(p.interp_mode))] if p.interp_mode else 1])
    target = new_extent(p, image.shape[:2])
    if target[0] * target[1] > MOST_PIXELS:
        raise DataError(f"an image of {image.shape[0]} x {image.shape[1]} becomes {target[0]} x {target[1]}, "
                        f"more than {MOST_PIXELS} pixels")
    if p.resize_mode != FIT_LARGE_SIZE_AND_PAD:
        return _resized(image, target, method)
    values = list(p.pad_value) or [0.0]
    if len(values) not in (1, n_channels):
        raise DataError(f"expected 1 pad_value or one for each of {n_channels} channels, got {len(values)}")
    small = fitted_extent(p, image.shape[:2])
    (top, bottom), (left, right) = (((whole - part) // 2, whole - part - (whole - part) // 2)
                                    for whole, part in zip(target, small, strict=True))
    colour = (values * n_channels)[:n_channels] if len(values) == 1 else values
    padded = cv2.copyMakeBorder(_resized(image, small, method), top, bottom, left, right,
                                getattr(cv2, BORDERS[p.pad_mode]), value=colour)
    return np.asarray(padded).reshape(*target, n_channels)


def fitted_extent(p: Any, extent: Extent) -> Extent:
    """Height and width of an image that keeps its shape and just fits into ``p``'s."""
    aspect = np.float32(extent[1]) / np.float32(extent[0])
    if aspect > np.float32(p.width) / np.float32(p.height):
        return max(1, int(np.float32(p.width) / aspect)), p.width
    return p.height, max(1, int(aspect * np.float32(p.height)))


def resize_objects(p: Any, extent: Extent, objects: Objects) -> Objects:
    """The objects in fractions of the resized image; ``extent`` is that of the image before."""
    if p.resize_mode != FIT_LARGE_SIZE_AND_PAD:
        return objects.at(np.clip(objects.boxes, np.float32(0), np.float32(1)))
    height, width = extent
    aspect = np.float32(width) / np.float32(height)
    target = np.array([p.width, p.height], np.float32)
    inner = target.copy()
    if aspect > target[0] / target[1]:
        inner[1] = target[0] / aspect
    else:
        inner[0] = aspect * target[1]
    start = np.tile((target - inner) / 2, 2)
    boxes = objects.boxes * np.tile(inner, 2)
    boxes[:, :2], boxes[:, 2:] = np.maximum(boxes[:, :2], 0), np.minimum(boxes[:, 2:], target)
    return objects.at(((boxes + start) / np.tile(target, 2)).astype(np.float32))


def rescale_objects(p: Any, extent: Extent, part: np.ndarray, objects: Objects) -> Objects:
    """With FIT_SMALL_SIZE, ``height_scale`` and ``width_scale``: boxes in units of those, not of the image.

    Args:
        p: the ResizeParameter message.
        extent: height and width before the image was resized.
        part: float32 (4,), what was cropped after it.
        objects: in fractions of the crop.

    Raises:
        DataError: the crop is smaller than the scales.
    """
    if p.resize_mode != FIT_SMALL_SIZE or not p.height_scale or not p.width_scale:
        return objects
    aspect = np.float32(extent[1]) / np.float32(extent[0])
    height, width = np.float32(p.height), np.float32(p.width)
    if aspect < width / height:
        height = width / aspect
    else:
        width = height * aspect
    crop = np.array([width, height]) * (part[2:] - part[:2])
    if crop[0] < p.width_scale or crop[1] < p.height_scale:
        raise DataError(f"height_scale {p.height_scale} and width_scale {p.width_scale} are larger than the image, "
                        f"{crop[1]:g} x {crop[0]:g}")
    factor = crop / np.array([p.width_scale, p.height_scale])
    return objects.at((objects.boxes * np.tile(factor, 2)).astype(np.float32))


def _resized(image: np.ndarray, extent: Extent, method: int) -> np.ndarray:
    resized = opencv().resize(np.ascontiguousarray(image), (extent[1], extent[0]), interpolation=method)
    return np.asarray(resized).reshape(*extent, image.shape[2])
