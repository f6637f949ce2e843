"""RegionLoss: YOLOv2's loss (Redmon and Farhadi, CVPR 2017; MobileNet-YOLO's fork, region_loss_layer.cpp)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.activation.activations import sigmoid, softmax
from scaffe.layers.base.bases import LossLayer
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.layers.yolo.boxes import IOU, intersection_over_union, objects_of, read_truth, similarities

COORDS, OBJECT, CLASSES = slice(0, 4), 4, slice(5, None)


class GridLoss(LossLayer):
    """A loss whose gradient is the differences that forward keeps, divided by the number of items."""

    host_only = True
    _differences: np.ndarray

    def differentiate(self, weight: float, bottom: Sequence[Blob]) -> np.ndarray:
        return weight / bottom[0].shape[0] * self._differences


@layer_types.register("RegionLoss")
class RegionLoss(GridLoss):
    """The squared differences between predicted boxes, objectness and classes and those of the ground truth.

    Each cell of an S x S grid predicts ``num`` boxes: tx, ty, tw, th, objectness and one score a class. With anchors
    (p_w, p_h), in cells, from ``biases``, a box in cell (i, j) is x = (i + sigmoid(tx)) / S, width = p_w exp(tw) / S;
    y and height likewise. Objectness is a sigmoid, classes are a softmax.

    An object's box is the one of its centre's cell whose anchor (with ``bias_match``, else the predicted size) has the
    most in common with its size. That box learns place, size, class and the objectness 1, or with ``rescore`` its
    overlap; place and size count coord_scale, without ``rescore`` times (2 - area). All other boxes learn objectness
    0, unless they overlap an object by more than ``thresh``. side, softmax, jitter, absolute, random, softmax_tree and
    class_map have no effect, as in the fork.

    Bottoms: predictions (N, num (5 + num_class), S, S); truth, 5 numbers for each of as many objects an item as there
    is room for: class, x, y, width, height as fractions of the image; an item's end where x or width is 0.
    Top: the sum of the squared differences, divided by N. The gradient is the differences times the slopes of the
    sigmoids, divided by N: not the derivative of that number, as in darknet.
    """

    temporaries, persistent_temporaries = 8, 2

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.region_loss_param
        if p.coords != 4 or len(p.biases) != 2 * p.num:
            raise LayerError(f"wants coords 4 and {2 * p.num} biases, two for each of {p.num} boxes; "
                             f"got coords {p.coords} and {len(p.biases)} biases")
        self._anchors = np.array(p.biases).reshape(p.num, 2).T

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p, shape = self.param.region_loss_param, bottom[0].shape
        check_grid(bottom, p.num * (5 + p.num_class))
        if shape[2] != shape[3]:
            raise LayerError(f"wants a square grid, got predictions {shape}")
        top[0].reshape(())

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p, x = self.param.region_loss_param, bottom[0].data
        n_items, _, side, _ = x.shape
        scores = x.reshape(n_items, p.num, -1, side, side).astype(np.float64)
        truth = read_truth(bottom[1].data, n_items)
        self._differences = np.stack([self._of_item(s, t) for s, t in zip(scores, truth, strict=True)])
        top[0].data[...] = np.square(self._differences).sum() / n_items

    def _of_item(self, scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
        """One item's differences, from scores (num, 5 + classes, S, S) and truth (objects, 5)."""
        p, side = self.param.region_loss_param, scores.shape[-1]
        boxes, objectness = self._boxes(scores), sigmoid(scores[:, OBJECT])
        differences = np.zeros_like(scores)
        far = best_overlap(boxes, truth) <= p.thresh
        differences[:, OBJECT] = far * p.noobject_scale * objectness * objectness * (1 - objectness)
        for row in objects_of(truth).astype(np.float64):
            i, j = cell_of(row[1:3], (side, side))
            sizes = self._anchors / side if p.bias_match else boxes[2:, :, j, i]
            n = best_anchor(sizes, row[3:5])
            differences[n, :, j, i] = self._of_object(scores[n, :, j, i], boxes[:, n, j, i], row, n, (i, j), side)
        return differences

    def _boxes(self, scores: np.ndarray) -> np.ndarray:
        """The predicted boxes, (4, num, S, S)."""
        side = scores.shape[-1]
        cells = np.arange(side)
        x, y = (cells + sigmoid(scores[:, 0])) / side, (cells[:, None] + sigmoid(scores[:, 1])) / side
        sizes = np.exp(scores[:, 2:4].swapaxes(0, 1)) * self._anchors[:, :, None, None] / side
        return np.stack([x, y, *sizes])

    def _of_object(self, scores: np.ndarray, box: np.ndarray, row: np.ndarray, n: int, cell: tuple[int, int],
                   side: int) -> np.ndarray:
        """The differences of the box that must predict an object, (5 + classes,)."""
        p, label = self.param.region_loss_param, class_of(row, self.param.region_loss_param.num_class)
        found, objectness = intersection_over_union(box, row[1:5]), sigmoid(scores[OBJECT : OBJECT + 1])[0]
        out = np.empty_like(scores)
        place = sigmoid(scores[:2])
        out[:2] = (place - (row[1:3] * side - cell)) * place * (1 - place)
        out[2:4] = scores[2:4] - np.log(row[3:5] * side / self._anchors[:, n])
        out[COORDS] *= p.coord_scale * (1 if p.rescore else 2 - row[3] * row[4])
        wanted = found if p.rescore else 1
        out[OBJECT] = p.object_scale * (objectness - wanted) * objectness * (1 - objectness)
        out[CLASSES] = p.class_scale * (softmax(scores[CLASSES], 0) - (np.arange(p.num_class) == label))
        return out


def check_grid(bottom: Sequence[Blob], n_channels: int) -> None:
    """Raise LayerError unless predictions are (N, n_channels, H, W) and truth has 5 numbers for each object."""
    shape, truth = bottom[0].shape, bottom[1]
    if len(shape) != 4 or shape[1] != n_channels or min(shape) < 1:
        raise LayerError(f"wants predictions (N, {n_channels}, H, W), got shape {shape}")
    if truth.n_elems % (5 * shape[0]) or not truth.n_elems:
        raise LayerError(f"wants truth of 5 numbers an object for {shape[0]} items, got shape {truth.shape}")


def best_overlap(boxes: np.ndarray, truth: np.ndarray, kind: int = IOU) -> np.ndarray:
    """The largest similarity (by default IoU) of each box, (4, ...), with an item's objects, which end where x is 0."""
    best = np.zeros(boxes.shape[1:])
    for row in truth:
        if row[1] == 0:
            break
        best = np.maximum(best, similarities(boxes, row[1:5].reshape(4, *[1] * best.ndim), kind))
    return best


def cell_of(centre: np.ndarray, grid: tuple[int, int]) -> tuple[int, int]:
    """Column and row of the cell that a centre (x, y) lies in; of the nearest one, if it lies outside the image."""
    i, j = (int(np.clip(int(c * n), 0, n - 1)) for c, n in zip(centre, grid, strict=True))
    return i, j


def best_anchor(sizes: np.ndarray, size: np.ndarray) -> int:
    """The first of the sizes, (2, n), with the largest IoU with an object's box at the same centre."""
    nowhere = np.zeros_like(sizes)
    wanted = np.array([0, 0, *size]).reshape(4, 1)
    return int(np.argmax(intersection_over_union(np.concatenate([nowhere, sizes]), wanted)))


def class_of(row: Any, n_classes: int) -> int:
    """The class of an object. Raises LayerError if there is no such class."""
    label = int(row[0])
    if not 0 <= label < n_classes:
        raise LayerError(f"label {label} is not one of the {n_classes} classes, 0 to {n_classes - 1}")
    return label
