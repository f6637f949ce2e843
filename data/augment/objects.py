"""The objects in an image, and how cropping and mirroring the image changes them (weiliu89/caffe, bbox_util.cpp).

A box is (xmin, ymin, xmax, ymax), float32, in fractions of the image's width and height.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

CENTER, MIN_OVERLAP = 0, 1  # EmitConstraint.EmitType
WHOLE = np.array([0, 0, 1, 1], np.float32)
COLUMNS = 8


@dataclass(frozen=True)
class Objects:
    """The objects in one image, group after group.

    Attributes:
        labels: int64 (n,), the classes.
        instances: int64 (n,), the number of each object within its class.
        boxes: float32 (n, 4).
        difficult: bool (n,).
    """

    labels: np.ndarray
    instances: np.ndarray
    boxes: np.ndarray
    difficult: np.ndarray

    def where(self, wanted: np.ndarray) -> Objects:
        """The objects for which ``wanted`` (n,) is true."""
        return Objects(self.labels[wanted], self.instances[wanted], self.boxes[wanted], self.difficult[wanted])

    def at(self, boxes: np.ndarray) -> Objects:
        """The same objects with other boxes (n, 4)."""
        return replace(self, boxes=boxes)

    def rows(self, item: int) -> np.ndarray:
        """float32 (n, 8), as a data layer's top has them: item, label, instance, box, difficult."""
        rows = np.empty((len(self.labels), COLUMNS), np.float32)
        rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3:7] = item, self.labels, self.instances, self.boxes
        rows[:, 7] = self.difficult
        return rows


    def truth(self, most: int, with_difficult: bool) -> np.ndarray:
        """float32 (most, 5), as YOLO's losses take them: class from 0, centre x and y, width, height; then zeros."""
        kept = self if with_difficult else self.where(~self.difficult)
        boxes = kept.boxes[:most]
        rows = np.zeros((most, 5), np.float32)
        rows[: len(boxes), 0] = kept.labels[:most] - 1
        rows[: len(boxes), 1:3] = (boxes[:, :2] + boxes[:, 2:]) / 2
        rows[: len(boxes), 3:] = boxes[:, 2:] - boxes[:, :2]
        return rows


def areas(boxes: np.ndarray) -> np.ndarray:
    """Areas of boxes (..., 4): width times height, 0 for a box with its corners in the wrong order."""
    extents = boxes[..., 2:] - boxes[..., :2]
    found: np.ndarray = np.where((extents >= 0).all(axis=-1), extents.prod(axis=-1), 0)
    return found


def shared_areas(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Areas of the intersections of boxes (n, 4) with boxes (m, 4): (n, m)."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return areas(np.concatenate([low, high], axis=-1))


def crop_objects(objects: Objects, part: np.ndarray,
                 emits: Callable[[np.ndarray], np.ndarray] | None = None) -> Objects:
    """The objects in a part of an image, their boxes in fractions of that part and clipped to it.

    Args:
        objects: in fractions of the image.
        part: float32 (4,), in fractions of the image; may reach beyond it.
        emits: from boxes (n, 4) to bool (n,), which of them may stay; None: all.
    """
    if emits is not None:
        objects = objects.where(emits(objects.boxes))
    corner, extent = np.tile(part[:2], 2), np.tile(part[2:] - part[:2], 2)
    apart = (objects.boxes[:, :2] >= part[2:]).any(axis=1) | (objects.boxes[:, 2:] <= part[:2]).any(axis=1)
    clipped = np.clip((objects.boxes - corner) / extent, np.float32(0), np.float32(1))
    return objects.at(clipped).where(~apart & (areas(clipped) > 0))


def emit_rule(constraint: Any, part: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The rule by which boxes stay when a part of the image is cropped.

    Args:
        constraint: the EmitConstraint message: CENTER, those whose centre lies in the part; MIN_OVERLAP, those of which
            more than ``emit_overlap`` lies in it.
        part: float32 (4,).
    """

    def by_centre(boxes: np.ndarray) -> np.ndarray:
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        inside: np.ndarray = ((centres >= part[:2]) & (centres <= part[2:])).all(axis=1)
        return inside

    def by_overlap(boxes: np.ndarray) -> np.ndarray:
        shared = shared_areas(boxes, part[None])[:, 0]
        return shared > np.float32(constraint.emit_overlap) * areas(boxes)

    return by_centre if constraint.emit_type == CENTER else by_overlap


def mirrored(objects: Objects) -> Objects:
    """The objects in an image flipped left to right."""
    x0, y0, x1, y1 = objects.boxes.T
    return objects.at(np.stack([1 - x1, y0, 1 - x0, y1], axis=1))
