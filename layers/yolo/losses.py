"""RegionLoss: YOLOv2's loss (Redmon and Farhadi, CVPR 2017; MobileNet-YOLO's fork, region_loss_layer.cpp); Yolov3:
YOLOv3's at one scale (Redmon and Farhadi 2018; yolov3_layer.cpp)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.activation.activations import sigmoid, softmax
from scaffe.layers.base.bases import LossLayer
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.layers.yolo.boxes import (
    DIOU,
    IOU,
    MSE,
    intersection_over_union,
    objects_of,
    read_truth,
    similarities,
    similarity,
    slopes,
)

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


FOCAL_ALPHA, FOCAL_SMALL = 0.5, 1e-15


@dataclass
class _Item:
    """One item while its differences are found: scores (num, 5 + classes, H, W) before and after the sigmoids, the
    boxes that they predict, (4, num, H, W), differences of the scores' shape, and the sum of 1 - overlap over the boxes
    that predict objects, and their number."""

    raw: np.ndarray
    seen: np.ndarray
    boxes: np.ndarray
    differences: np.ndarray
    lost_overlap: float = 0.0
    n_objects: int = 0


@layer_types.register("Yolov3")
class Yolov3(GridLoss):
    """The differences between predicted boxes, objectness and classes and those of the ground truth.

    Each cell of an H x W grid predicts ``num`` boxes, with the anchors of ``biases`` that ``mask`` numbers, in pixels
    of an image of anchors_scale pixels a cell: x = (i + sigmoid(tx)) / W, width = exp(tw) anchor / (W anchors_scale).
    Objectness and classes are sigmoids.

    An object's boxes are those of its centre's cell: of the anchor most like its size, if ``mask`` has it, and of
    each other one of ``mask`` whose size it overlaps by more than ``iou_thresh``. (The fork compares an anchor's number
    with a place in ``mask`` when it leaves out the first, and so does this layer.) They learn objectness 1, the class,
    with ``label_smooth_eps`` and perhaps the focal loss, and the box: by squared differences (MSE), counting
    coord_scale (2 - area), or by the slopes of IoU, GIoU, DIoU or CIoU, times iou_normalizer, at most max_delta, added
    to those of objects before unless ``accumulate`` is false. All other boxes learn objectness 0, unless they are like
    an object by more than ``thresh``. side and noobject_scale have no effect, as in the fork.

    Bottoms: predictions (N, num (5 + num_class), H, W); truth as for RegionLoss.
    Top: the sum of the squared differences, without the boxes' unless MSE, plus iou_normalizer times the mean of
    1 - overlap; divided by N. The gradient is the differences, times the sigmoids' slopes with use_logic_gradient,
    divided by N: not the derivative of that number, as in darknet.
    """

    temporaries, persistent_temporaries = 11, 2

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.yolov3_param
        n_anchors, mask = len(p.biases) // 2, list(p.mask[: p.num])
        if len(p.biases) % 2 or len(mask) < p.num or max(mask, default=0) >= n_anchors or not n_anchors:
            raise LayerError(f"wants pairs of biases, and a mask of {p.num} that numbers them from 0; "
                             f"got {len(p.biases)} biases and mask {list(p.mask)}")
        self._anchors, self._mask = np.array(p.biases).reshape(-1, 2).T, mask

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.yolov3_param
        check_grid(bottom, p.num * (5 + p.num_class))
        top[0].reshape(())

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p, shape = self.param.yolov3_param, bottom[0].shape
        raw = bottom[0].data.reshape(shape[0], p.num, -1, *shape[2:]).astype(np.float64)
        truth = read_truth(bottom[1].data, shape[0]).astype(np.float64)
        items = [self._of_item(r, t) for r, t in zip(raw, truth, strict=True)]
        self._differences = np.stack([item.differences for item in items])
        counted = self._differences if p.iou_loss == MSE else self._differences[:, :, OBJECT:]
        loss = np.square(counted).sum()
        n_objects = sum(item.n_objects for item in items)
        if p.iou_loss != MSE and n_objects:
            loss += p.iou_normalizer * sum(item.lost_overlap for item in items) / n_objects
        top[0].data[...] = loss / shape[0]
        if p.use_logic_gradient:
            self._differences *= self._sigmoid_slopes(raw)

    def _sigmoid_slopes(self, raw: np.ndarray) -> np.ndarray:
        """y (1 - y) of each score's sigmoid y, 1 for sizes; without MSE the fork takes x (1 - x) for places."""
        seen = sigmoid(raw)
        if self.param.yolov3_param.iou_loss != MSE:
            seen[:, :, :2] = raw[:, :, :2]
        out: np.ndarray = seen * (1 - seen)
        out[:, :, 2:4] = 1
        return out

    def _of_item(self, raw: np.ndarray, truth: np.ndarray) -> _Item:
        """One item's differences, from scores (num, 5 + classes, H, W) and truth (objects, 5)."""
        p = self.param.yolov3_param
        seen = sigmoid(raw)
        seen[:, 2:4] = raw[:, 2:4]
        item = _Item(raw, seen, self._boxes(seen), np.zeros_like(raw))
        far = best_overlap(item.boxes, truth, p.iou_loss) <= p.thresh
        item.differences[:, OBJECT] = far * seen[:, OBJECT]
        for row in objects_of(truth):
            for place in self._places(row, raw.shape[2:]):
                self._learn(item, place, row)
        return item

    def _places(self, row: np.ndarray, grid: tuple[int, ...]) -> list[int]:
        """Which of the ``num`` boxes of an object's cell predict it."""
        p, size = self.param.yolov3_param, np.array([0, 0, *row[3:5]])
        alike = [similarity(np.array([0, 0, *anchor]), size, p.iou_loss)
                 for anchor in self._sizes(grid, list(range(self._anchors.shape[1]))).T]
        best = int(np.argmax(alike)) if max(alike) > 0 else -1
        places = []
        if best in self._mask:
            best = self._mask.index(best)
            places.append(best)
        if p.iou_thresh < 1:
            places += [self._mask.index(n) for n, found in enumerate(alike)
                       if n in self._mask and n != best and found > p.iou_thresh]
        return places

    def _sizes(self, grid: tuple[int, ...], anchors: list[int]) -> np.ndarray:
        """Widths and heights of anchors as fractions of the image, (2, anchors)."""
        pixels = np.array([[grid[1]], [grid[0]]]) * self.param.yolov3_param.anchors_scale
        sizes: np.ndarray = self._anchors[:, anchors] / pixels
        return sizes

    def _boxes(self, seen: np.ndarray) -> np.ndarray:
        """The predicted boxes, (4, num, H, W)."""
        height, width = seen.shape[2:]
        x, y = (np.arange(width) + seen[:, 0]) / width, (np.arange(height)[:, None] + seen[:, 1]) / height
        sizes = np.exp(seen[:, 2:4].swapaxes(0, 1)) * self._sizes((height, width), self._mask)[:, :, None, None]
        return np.stack([x, y, *sizes])

    def _learn(self, item: _Item, place: int, row: np.ndarray) -> None:
        """Set the differences of a box that is to predict an object."""
        p = self.param.yolov3_param
        grid = item.seen.shape[2:]
        i, j = cell_of(row[1:3], (grid[1], grid[0]))
        seen, out = item.seen[place, :, j, i], item.differences[place, :, j, i]
        box = item.boxes[:, place, j, i]
        if p.iou_loss == MSE:
            size = np.log(row[3:5] / self._sizes(grid, [self._mask[place]])[:, 0])
            wanted = np.array([row[1] * grid[1] - i, row[2] * grid[0] - j, *size])
            out[:4] = p.coord_scale * (2 - row[3] * row[4]) * (seen[:4] - wanted)
            found = similarity(box, row[1:5], MSE)
        else:
            out[:4] = (out[:4] if p.accumulate else 0) - self._box_slopes(box, row[1:5], seen)
            found = similarity(box, row[1:5], p.iou_loss or DIOU)  # for IOU the fork counts DIoU
        out[OBJECT] = (seen[OBJECT] - 1) * (p.object_scale if p.use_logic_gradient else 1)
        self._learn_class(seen[CLASSES], out[CLASSES], class_of(row, p.num_class))
        item.lost_overlap += 1 - found
        item.n_objects += 1

    def _box_slopes(self, box: np.ndarray, truth: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """The slopes by the four scores, of which places are taken after their sigmoids, sizes before exp."""
        p = self.param.yolov3_param
        found = slopes(box, truth, p.iou_loss)
        found[2:] *= np.exp(seen[2:4])
        finite = np.nan_to_num(found * p.iou_normalizer, nan=0, posinf=0, neginf=0)
        bounded: np.ndarray = np.clip(finite, -p.max_delta, p.max_delta)
        return bounded

    def _learn_class(self, seen: np.ndarray, out: np.ndarray, label: int) -> None:
        """Set the classes' differences; of a box that has an object already, only this class's."""
        p = self.param.yolov3_param
        smoothed = (np.arange(len(seen)) == label) * (1 - p.label_smooth_eps) + 0.5 * p.label_smooth_eps
        if out[label] != 0:
            out[label] = p.class_scale * (seen[label] - smoothed[label])
        elif p.use_focal_loss:
            sure = seen[label] + FOCAL_SMALL
            factor = -FOCAL_ALPHA * (1 - sure) * (2 * sure * np.log(sure) + sure - 1)
            out[...] = p.class_scale * (seen - (np.arange(len(seen)) == label)) * factor
        else:
            out[...] = p.class_scale * (seen - smoothed)
