"""Python layers as Faster R-CNN's users have them (rbgirshick/py-faster-rcnn, lib/rpn), on drawn images.

An image is 64 x 64, dark, with one bright square (class 1) or disc (class 2).
"""

from __future__ import annotations

import ast

import numpy as np

import scaffe as caffe

SIDE, STRIDE, SCALES = 64, 8, (2, 3)
ANCHORS = np.array([[3.5 - (8 * s - 1) / 2] * 2 + [3.5 + (8 * s - 1) / 2] * 2 for s in SCALES])


def draw(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """An image (1, 1, 64, 64), and its box and class (1, 5): x1, y1, x2, y2, class."""
    rng = np.random.default_rng(seed)
    image, size, kind = rng.normal(0, 0.1, (SIDE, SIDE)), int(rng.integers(14, 27)), int(rng.integers(1, 3))
    x, y = rng.integers(0, SIDE - size, 2)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    inside = (abs(columns - x - size / 2 + 0.5) < size / 2) & (abs(rows - y - size / 2 + 0.5) < size / 2)
    if kind == 2:
        inside &= (columns - x - size / 2 + 0.5) ** 2 + (rows - y - size / 2 + 0.5) ** 2 < (size / 2) ** 2
        inside &= (columns - x - size / 2 + 0.5) ** 2 + (rows - y - size / 2 + 0.5) ** 2 > (size / 4) ** 2
    image[inside] += 1
    return image[None, None], np.array([[x, y, x + size - 1, y + size - 1, kind]], float)


def overlaps(boxes: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes (n, 4) with one."""
    sides = [np.minimum(boxes[:, i + 2], other[i + 2]) - np.maximum(boxes[:, i], other[i]) + 1 for i in (0, 1)]
    shared = np.maximum(sides[0], 0) * np.maximum(sides[1], 0)
    area = np.prod(boxes[:, 2:4] - boxes[:, :2] + 1, axis=1) + np.prod(other[2:4] - other[:2] + 1)
    return shared / (area - shared)


def targets(boxes: np.ndarray, other: np.ndarray) -> np.ndarray:
    """What would move each of the boxes to the other (n, 4)."""
    sizes, size = boxes[:, 2:4] - boxes[:, :2] + 1, other[2:4] - other[:2] + 1
    shifts = (other[:2] + size / 2 - boxes[:, :2] - sizes / 2) / sizes
    return np.concatenate([shifts, np.log(size / sizes)], axis=1)


def moved(boxes: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """The boxes moved."""
    sizes = boxes[:, 2:4] - boxes[:, :2] + 1
    centres, half = boxes[:, :2] + sizes / 2 + deltas[:, :2] * sizes, np.exp(deltas[:, 2:]) * sizes / 2
    return np.clip(np.concatenate([centres - half, centres + half], axis=1), 0, SIDE - 1)


class NoGradient(caffe.Layer):
    """Reshapes in forward, as py-faster-rcnn's layers."""

    def reshape(self, bottom, top):
        """In forward."""

    def backward(self, top, propagate_down, bottom):
        """No gradient."""

    @staticmethod
    def show(top, *blobs):
        """Put the blobs into the tops."""
        for one, blob in zip(top, blobs):
            one.reshape(*blob.shape)
            one.data[...] = blob


class Drawn(NoGradient):
    """data, im_info, gt_boxes of the next image."""

    def setup(self, bottom, top):
        """Begin with the first."""
        self.at = 0
        self.forward(bottom, top)

    def forward(self, bottom, top):
        """The next image."""
        image, box = draw(self.at % 200)
        self.show(top, image, np.array([[SIDE, SIDE, 1.0]]), box)
        self.at += 1


class AnchorTarget(NoGradient):
    """Labels, box targets, inside and outside weights of all anchors."""

    def setup(self, bottom, top):
        """Shapes."""
        assert ast.literal_eval("{" + self.param_str_ + "}") == {"feat_stride": STRIDE}
        self.forward(bottom, top)

    def forward(self, bottom, top):
        """From scores and ground truth."""
        (height, width), a = bottom[0].data.shape[2:], len(ANCHORS)
        rows, columns = np.mgrid[:height, :width] * STRIDE
        boxes = (ANCHORS + np.stack([columns, rows] * 2, axis=-1)[:, :, None]).reshape(-1, 4)
        true = bottom[1].data[0].astype(float)
        near = overlaps(boxes, true)
        labels = np.where(near >= min(0.5, near.max()), 1.0, np.where(near < 0.3, 0.0, -1.0))
        inside = np.repeat(labels[:, None] == 1, 4, axis=1).astype(float)
        outside = np.repeat(labels[:, None] >= 0, 4, axis=1) / max((labels >= 0).sum(), 1)
        maps = [blob.reshape(height, width, 4 * a).transpose(2, 0, 1)[None]
                for blob in (targets(boxes, true), inside, outside)]
        self.show(top, labels.reshape(height, width, a).transpose(2, 0, 1).reshape(1, 1, a * height, width), *maps)


class ProposalOfScores(NoGradient):
    """Regions with the best scores, as rpn.proposal_layer."""

    def setup(self, bottom, top):
        """How many, by the phase's name."""
        self.most = {"TRAIN": 24, "TEST": 8}[str(self.phase)]
        top[0].reshape(1, 5)

    def forward(self, bottom, top):
        """Greedy suppression at 0.7."""
        (height, width), a = bottom[0].data.shape[2:], len(ANCHORS)
        rows, columns = np.mgrid[:height, :width] * STRIDE
        boxes = (ANCHORS + np.stack([columns, rows] * 2, axis=-1)[:, :, None]).reshape(-1, 4)
        scores = bottom[0].data[0, a:].transpose(1, 2, 0).ravel()
        boxes = moved(boxes, bottom[1].data[0].transpose(1, 2, 0).reshape(-1, 4))
        kept: list[int] = []
        for i in np.argsort(-scores, kind="stable"):
            if len(kept) < self.most and all(overlaps(boxes[i:i + 1], boxes[k])[0] <= 0.7 for k in kept):
                kept.append(i)
        self.show(top, np.concatenate([np.zeros((len(kept), 1)), boxes[kept]], axis=1))


class ProposalTarget(NoGradient):
    """Regions, labels, box targets, inside and outside weights; param_str: how many classes have boxes of their own."""

    def setup(self, bottom, top):
        """Shapes."""
        self.n_classes = ast.literal_eval("{" + self.param_str + "}")["num_classes"]
        self.forward(bottom, top)

    def forward(self, bottom, top):
        """From regions and ground truth, which is a region too."""
        true = bottom[1].data[0].astype(float)
        regions = np.concatenate([bottom[0].data, [[0, *true[:4]]]]).astype(float)
        near = overlaps(regions[:, 1:], true)
        labels = np.where(near >= 0.5, true[4], 0)
        boxes = np.zeros((len(regions), self.n_classes, 4))
        inside = np.zeros_like(boxes)
        for i in np.flatnonzero(labels):
            kind = min(int(labels[i]), self.n_classes - 1)
            boxes[i, kind], inside[i, kind] = targets(regions[i:i + 1, 1:], true)[0], 1
        flat = [blob.reshape(len(regions), -1, 1, 1) for blob in (labels, boxes, inside, inside)]
        self.show(top, regions, *flat)
