"""Yolov3: YOLOv3's loss at one scale (Redmon and Farhadi 2018; MobileNet-YOLO's fork, yolov3_layer.cpp)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.activation.activations import sigmoid
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.layers.yolo.boxes import DIOU, MSE, objects_of, read_truth, similarity, slopes
from scaffe.layers.yolo.region_loss import GridLoss, best_overlap, cell_of, check_grid, class_of

OBJECT, CLASSES = 4, slice(5, None)
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
