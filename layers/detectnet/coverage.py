"""DetectNet's targets at each cell of a grid, from boxes (NVIDIA/caffe, detectnet_coverage_rectangular.cpp).

Boxes are rows of 16 numbers; x, y, width and height come first, then an angle, then the class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.errors import LayerError

N_COLUMNS = 16  # numbers of a box in the labels
CLASS = 5
N_FIXED = 8  # planes before the classes': foreground, corners (4), inverse sizes (2), object norm
SMALL = float(np.finfo(np.float32).eps)


class Coverage:
    """Marks the cells that boxes cover, as a DetectNetGroundTruthParameter message says. ``shape`` is that of
    ``planes``, (8 + classes, rows, columns). Raises LayerError if the stride or the image's size is 0."""

    def __init__(self, options: Any) -> None:
        self._options, self._stride = options, int(options.stride)
        if min(options.stride, options.image_size_x, options.image_size_y) < 1:
            raise LayerError(f"wants a stride and an image size above 0, got {options.stride} and "
                             f"{options.image_size_x} x {options.image_size_y}")
        self._classes = {int(c.src): int(c.dst) for c in options.object_class} or {1: 0}
        grid = (round(options.image_size_y / self._stride), round(options.image_size_x / self._stride))
        self.shape = (N_FIXED + max(self._classes.values()) + 1, *grid)

    def planes(self, boxes: np.ndarray) -> np.ndarray:
        """The planes of one image with boxes (n, 16), in pixels of the image that the net sees.

        Each cell that a box's coverage region meets has: 1; the box's corners minus the cell's; 1 / width and 1 /
        height; the cell's area over the region's, at least 1 without obj_norm; and 1 for its class. Of several boxes
        that cover a cell, the last counts."""
        out = np.zeros(self.shape)
        for row in boxes:
            box, label = self._kept_part(row[:4]), int(row[CLASS])
            if label in self._classes and box[2] * box[3] >= SMALL:
                self._mark(out, box, self._classes[label])
        return out

    def _kept_part(self, box: np.ndarray) -> np.ndarray:
        """The part of a box inside the image, or all of it without crop_bboxes."""
        if not self._options.crop_bboxes:
            return box
        size = np.array([self._options.image_size_x, self._options.image_size_y])
        low, high = np.maximum(box[:2], 0), np.minimum(box[:2] + box[2:], size)
        return np.concatenate([low, high - low]) if (high > low).all() else np.zeros(4)

    def _mark(self, out: np.ndarray, box: np.ndarray, plane: int) -> None:
        low, high = self._region(box)
        area, stride = float(np.prod(high - low)), self._stride
        first = np.maximum(np.floor(low / stride), 0).astype(int)
        end = np.minimum(np.ceil(high / stride), self.shape[:0:-1]).astype(int)
        norm = stride**2 / area if area else np.inf
        for row in range(first[1], end[1]):
            for column in range(first[0], end[0]):
                corner = np.array([column, row]) * stride
                common = np.minimum(high, corner + stride) - np.maximum(low, corner)
                if (common > 0).all() and np.prod(common) / stride**2 > SMALL:
                    cell = out[:, row, column]
                    cell[N_FIXED:] = 0
                    cell[N_FIXED + plane] = cell[0] = 1
                    cell[1:5] = np.concatenate([box[:2], box[:2] + box[2:]]) - np.tile(corner, 2)
                    cell[5:7] = 1 / box[2:]
                    cell[7] = max(0.0 if self._options.obj_norm else 1.0, norm)

    def _region(self, box: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The corners of the region around a box's centre that counts as covered."""
        p = self._options
        size = box[2:] * p.scale_cvg
        if p.gridbox_type == p.GRIDBOX_MIN:
            size = np.minimum(box[2:], np.maximum(p.min_cvg_len, size))
        else:
            size = np.minimum(p.max_cvg_len, size)
        centre = box[:2] + box[2:] / 2
        return centre - size / 2, centre + size / 2


def read_boxes(labels: np.ndarray) -> np.ndarray:
    """The boxes of one item of a label blob, (n, 16): number of boxes and 16 stand first, and fill a row of their own.
    Raises LayerError if the numbers do not say what the item holds."""
    flat = labels.reshape(-1)
    if flat.size < N_COLUMNS or flat[1] != N_COLUMNS or not 0 <= flat[0] <= flat.size // N_COLUMNS - 1:
        raise LayerError(f"wants labels of {N_COLUMNS} numbers a box after a row with the number of boxes and "
                         f"{N_COLUMNS}; got {flat[:2].tolist()} before {flat.size} numbers")
    n_boxes = int(flat[0])
    return flat[N_COLUMNS : (n_boxes + 1) * N_COLUMNS].reshape(n_boxes, N_COLUMNS).astype(np.float64)
