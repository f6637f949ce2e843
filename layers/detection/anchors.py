"""Anchors, and the boxes that they become (Faster R-CNN, Ren et al. 2015, section 3.1.2): pure functions.

Boxes are x1, y1, x2, y2 in pixels, both corners included, so that a box is x2 - x1 + 1 wide. Formulas:
rbgirshick/py-faster-rcnn, lib/rpn/generate_anchors.py and lib/fast_rcnn/bbox_transform.py; sanghoon/caffe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.layers.base.errors import LayerError


def base_anchors(base: int, ratios: Sequence[float], scales: Sequence[float]) -> np.ndarray:
    """The anchors at place 0.

    Args:
        base: width and height of the square that all anchors come from.
        ratios: height over width.
        scales: factors on both.

    Returns:
        (ratios x scales, 4), float64; the scales of the first ratio come first.
    """
    sizes = []
    for ratio in ratios:
        width = np.floor(np.sqrt(base * base / ratio) + 0.5)
        height = np.floor(width * ratio + 0.5)
        sizes += [(width * scale, height * scale) for scale in scales]
    centre, half = (base - 1) / 2, (np.array(sizes) - 1) / 2
    return np.concatenate([centre - half, centre + half], axis=1)


def all_anchors(anchors: np.ndarray, height: int, width: int, stride: int) -> np.ndarray:
    """The anchors at every place of a feature map whose pixels are ``stride`` apart: (height, width, anchors, 4)."""
    rows, columns = np.mgrid[:height, :width] * stride
    places: np.ndarray = np.stack([columns, rows, columns, rows], axis=-1)[:, :, None] + anchors
    return places


def moved(boxes: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """Boxes (..., 4) moved by predictions (..., 4): shifts of the centre in widths and heights, logarithms of sizes."""
    sizes = boxes[..., 2:] - boxes[..., :2] + 1
    centres = boxes[..., :2] + sizes / 2 + deltas[..., :2] * sizes
    half = np.exp(deltas[..., 2:]) * sizes / 2
    return np.concatenate([centres - half, centres + half], axis=-1)


def clipped(boxes: np.ndarray, height: float, width: float) -> np.ndarray:
    """Boxes (..., 4) cut to an image."""
    limits = np.array([width - 1, height - 1] * 2, boxes.dtype)
    inside: np.ndarray = np.maximum(np.minimum(boxes, limits), 0)
    return inside


def moved_within(boxes: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """As ``moved``, but boxes keep both corners included: a box that does not move stays as it is (Cascade R-CNN)."""
    found = moved(boxes, deltas)
    found[..., 2:] -= 1
    return found


def spread_of_boxes(p: Any) -> tuple[np.ndarray, np.ndarray]:
    """The mean and deviation, each (4,), that predictions were normalised by; 0 and 1 if they were not.

    Args:
        p: the BBoxRegParameter message.

    Raises:
        LayerError: there are not 4 of each, or a deviation is not above 0.
    """
    if not p.bbox_mean or not p.bbox_std:
        return np.zeros(4, np.float32), np.ones(4, np.float32)
    if len(p.bbox_mean) != 4 or len(p.bbox_std) != 4 or not min(p.bbox_std) > 0:
        raise LayerError(f"wants 4 bbox_mean and 4 bbox_std above 0, got {list(p.bbox_mean)} and {list(p.bbox_std)}")
    return np.array(p.bbox_mean, np.float32), np.array(p.bbox_std, np.float32)
