"""YoloDetectionOutput and Yolov3DetectionOutput: the objects that YOLOv2 and YOLOv3 find (MobileNet-YOLO's fork)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.activation.activations import sigmoid, softmax
from scaffe.layers.base.bases import NoGradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.layers.detection.boxes import COLUMNS, show_detections
from scaffe.layers.yolo.boxes import corners

Found = tuple[np.ndarray, np.ndarray, np.ndarray]  # boxes (4, n), labels (n,) and scores (n,)


class _Output(NoGradient):
    """Keeps the best one of overlapping boxes, whatever their class, item by item.

    Top: (1, 1, D, 7), a row a detection, best first in each item: item, label counted from 1, score, left, top, right,
    bottom. If nothing is found at all: a row for each item, -1 but for the first column. (The forks give every
    detection the item 0, and so only run on one image at a time.)
    """

    host_only = True
    reshape_always = True
    temporaries = 2

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top as for one detection. Raises LayerError if the predictions do not have the options' shape."""
        for blob in bottom:
            self._check(blob.shape)
            if blob.shape[0] != bottom[0].shape[0]:
                raise LayerError(f"wants predictions for the same items, got {bottom[0].shape} and {blob.shape}")
        top[0].reshape((1, 1, 1, COLUMNS))

    @np.errstate(over="ignore", invalid="ignore")  # boxes of nets that are not trained
    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        n_items, rows = bottom[0].shape[0], []
        for item in range(n_items):
            found = [self._candidates(index, blob.data[item].astype(np.float64)) for index, blob in enumerate(bottom)]
            rows.append(self._rows(item, *(np.concatenate(parts, -1) for parts in zip(*found, strict=True))))
        show_detections(top[0], rows, n_items)

    def _rows(self, item: int, boxes: np.ndarray, labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
        from scaffe.layers.kernels.cpu.boxes import suppress_centred

        order = np.argsort(-scores, kind="stable")
        kept = order[suppress_centred(boxes[:, order], self._options().nms_threshold)]
        heads = [np.full(len(kept), item), labels[kept] + 1, scores[kept]]
        return np.stack([*heads, *corners(boxes[:, kept])], axis=1)

    def _options(self) -> Any:
        """The layer's own message, with nms_threshold."""
        raise NotImplementedError

    def _check(self, shape: tuple[int, ...]) -> None:
        """Raise LayerError if predictions do not have the options' shape."""
        raise NotImplementedError

    def _candidates(self, index: int, scores: np.ndarray) -> Found:
        """The boxes above the threshold of one item and bottom, (channels, H, W)."""
        raise NotImplementedError


@layer_types.register("YoloDetectionOutput")
class YoloDetectionOutput(_Output):
    """What YOLOv2 finds (yolo_detection_output_layer.cpp): boxes as in RegionLoss, each with its likeliest class.

    A box's score is its objectness times that class's probability, and at least confidence_threshold. side, coords
    and label_map_file have no effect, as in the fork.

    Bottoms: one or two predictions (N, num_box (5 + num_classes), S, S). Top: see ``_Output``.
    """

    n_bottoms = (1, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self._options()
        if not p.HasField("num_classes") or len(p.biases) != 2 * p.num_box:
            raise LayerError(f"wants num_classes and {2 * p.num_box} biases, two for each of {p.num_box} boxes; "
                             f"got {len(p.biases)} biases")
        self._anchors = np.array(p.biases).reshape(p.num_box, 2).T

    def _options(self) -> Any:
        return self.param.yolo_detection_output_param

    def _check(self, shape: tuple[int, ...]) -> None:
        n_channels = self._options().num_box * (5 + self._options().num_classes)
        if len(shape) != 4 or shape[1] != n_channels or shape[2] != shape[3]:
            raise LayerError(f"wants predictions (N, {n_channels}, S, S), got shape {shape}")

    def _candidates(self, index: int, scores: np.ndarray) -> Found:
        p, side = self._options(), scores.shape[-1]
        boxes_first = scores.reshape(p.num_box, -1, side, side)
        by_cell = np.moveaxis(boxes_first, 0, -1)  # (5 + classes, S, S, num_box): the order of ties
        x, y = ((cells + sigmoid(t)) / side for cells, t in zip(_cells(side, side), by_cell[:2], strict=True))
        sizes = np.exp(by_cell[2:4]) * self._anchors[:, None, None, :] / side
        chances = softmax(by_cell[5:], 0)
        found = sigmoid(by_cell[4]) * chances.max(0)
        chosen = found >= p.confidence_threshold
        return np.stack([x, y, *sizes])[:, chosen], chances.argmax(0)[chosen], found[chosen]


@layer_types.register("Yolov3DetectionOutput")
class Yolov3DetectionOutput(_Output):
    """What YOLOv3 finds (yolov3_detection_output_layer.cpp): boxes as in Yolov3, each with every class that is likely.

    A box's score for a class is objectness times the class's sigmoid, and above confidence_threshold. ``mask`` has as
    many anchors for each bottom, and anchors_scale one number.

    Bottoms: mask_group_num predictions (N, num_box (5 + num_classes), H, W). Top: see ``_Output``.
    """

    n_bottoms = (1, None)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self._options()
        if p.gaussian_box:
            raise LayerError("gaussian_box is not there: in the fork it reads classes beyond their scores")
        if not p.HasField("num_classes") or len(bottom) != p.mask_group_num:
            raise LayerError(f"wants num_classes, and as many bottoms as mask_group_num {p.mask_group_num}; "
                             f"got {len(bottom)} bottoms")
        n_group, n_anchors = len(p.mask) // p.mask_group_num, len(p.biases) // 2
        if n_group < p.num_box or max(p.mask, default=0) >= n_anchors or len(p.anchors_scale) < len(bottom):
            raise LayerError(f"wants a mask of {p.num_box} for each bottom, biases for it, and an anchors_scale a "
                             f"bottom; got mask {list(p.mask)}, {len(p.biases)} biases, {list(p.anchors_scale)}")
        anchors = np.array(p.biases[: 2 * n_anchors]).reshape(-1, 2).T
        self._anchors = [anchors[:, p.mask[i * n_group : i * n_group + p.num_box]] for i in range(len(bottom))]

    def _options(self) -> Any:
        return self.param.yolov3_detection_output_param

    def _check(self, shape: tuple[int, ...]) -> None:
        n_channels = self._options().num_box * (5 + self._options().num_classes)
        if len(shape) != 4 or shape[1] != n_channels or min(shape) < 1:
            raise LayerError(f"wants predictions (N, {n_channels}, H, W), got shape {shape}")

    def _candidates(self, index: int, scores: np.ndarray) -> Found:
        p, (height, width) = self._options(), scores.shape[1:]
        by_cell = np.moveaxis(scores.reshape(p.num_box, -1, height, width), 0, -1)  # (5 + classes, H, W, num_box)
        columns, rows = _cells(height, width)
        x, y = (columns + sigmoid(by_cell[0])) / width, (rows + sigmoid(by_cell[1])) / height
        pixels = np.array([width, height])[:, None] * p.anchors_scale[index]
        sizes = np.exp(by_cell[2:4]) * (self._anchors[index] / pixels)[:, None, None, :]
        found = np.moveaxis(sigmoid(by_cell[5:]) * sigmoid(by_cell[4]), 0, -1)  # (H, W, num_box, classes)
        *places, labels = np.nonzero(found > p.confidence_threshold)
        boxes = np.stack([x, y, *sizes])
        return np.stack([axis[tuple(places)] for axis in boxes]), labels, found[(*places, labels)]


def _cells(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Column and row numbers, (1, W, 1) and (H, 1, 1)."""
    return np.arange(width)[None, :, None], np.arange(height)[:, None, None]
