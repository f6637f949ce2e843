"""Anchors, and the boxes that they become (Faster R-CNN, Ren et al. 2015, section 3.1.2): pure functions.

Boxes are x1, y1, x2, y2 in pixels, both corners included, so that a box is x2 - x1 + 1 wide. Formulas:
rbgirshick/py-faster-rcnn, lib/rpn/generate_anchors.py and lib/fast_rcnn/bbox_transform.py; sanghoon/caffe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.bases import ZeroGradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types


def base_anchors(base: int, ratios: Sequence[float], scales: Sequence[float]) -> np.ndarray:
    """The anchors at place 0, float64 (ratios x scales, 4): squares of ``base`` pixels, changed to those ratios of
    height to width and then scaled; the scales of the first ratio come first."""
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
    """The mean and deviation, each (4,), that predictions were normalised by, of a BBoxRegParameter message; 0 and 1 if
    they were not. Raises LayerError unless there are 4 of each, the deviations above 0."""
    if not p.bbox_mean or not p.bbox_std:
        return np.zeros(4, np.float32), np.ones(4, np.float32)
    if len(p.bbox_mean) != 4 or len(p.bbox_std) != 4 or not min(p.bbox_std) > 0:
        raise LayerError(f"wants 4 bbox_mean and 4 bbox_std above 0, got {list(p.bbox_mean)} and {list(p.bbox_std)}")
    return np.array(p.bbox_mean, np.float32), np.array(p.bbox_std, np.float32)


RATIOS, SCALES = (0.5, 1.0, 2.0), (8.0, 16.0, 32.0)  # py-faster-rcnn's, if the net gives none


@layer_types.register("Proposal")
class Proposal(ZeroGradient):
    """Regions with the best scores that do not overlap much.

    Bottoms: scores (1, 2 A, H, W) of A anchors, those for background first; box predictions (1, 4 A, H, W); height and
    width of the input image and the factors it was scaled by, vertically and horizontally (1, 3 or 4).
    Tops: regions (R, 5), each (0, x1, y1, x2, y2); optionally their scores (R,). R is at most post_nms_topn.

    Anchors are moved by the predictions and cut to the image. The score of a box that is narrower or lower than
    min_size, in the image before it was scaled, counts as 0. Of the pre_nms_topn boxes with the best scores those stay
    that overlap no better one by more than nms_thresh.
    """

    n_bottoms = (3, 3)
    n_tops = (1, 2)
    host_only = True
    reshape_always = True
    exact_bottoms = (2,)
    temporaries = 5

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Make the anchors. Raises LayerError for a ratio or scale that is not above 0, or a number that is 0."""
        p = self.param.proposal_param
        ratios, scales = list(p.ratio) or RATIOS, list(p.scale) or SCALES
        if not min(*ratios, *scales) > 0:
            raise LayerError("ratio and scale must be above 0")
        for name in ("feat_stride", "base_size", "pre_nms_topn", "post_nms_topn"):
            if getattr(p, name) < 1:
                raise LayerError(f"{name} must be above 0")
        self._anchors = base_anchors(p.base_size, ratios, scales)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops for the most regions there may be. Raises LayerError if the bottoms' shapes do not fit."""
        n_anchors, space = len(self._anchors), bottom[0].shape[2:]
        if bottom[0].shape != (1, 2 * n_anchors, *space) or bottom[1].shape != (1, 4 * n_anchors, *space) \
                or len(space) != 2 or bottom[2].n_elems < 3:
            raise LayerError(f"wants scores (1, {2 * n_anchors}, H, W), boxes (1, {4 * n_anchors}, H, W) and (1, 3) of "
                             f"one image, got {', '.join(str(blob.shape) for blob in bottom)}")
        self._show(top, self.param.proposal_param.post_nms_topn)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        from scaffe.layers.kernels.cpu.boxes import suppress_in_pixels

        boxes, scores = self._boxes(bottom)
        p = self.param.proposal_param
        order = np.argsort(-scores, kind="stable")[:p.pre_nms_topn]
        chosen = order[suppress_in_pixels(boxes[order], p.nms_thresh, p.post_nms_topn)]
        self._show(top, len(chosen))
        top[0].data[:, 0] = 0
        top[0].data[:, 1:] = boxes[chosen]
        if len(top) > 1:
            top[1].data[...] = scores[chosen]

    def _boxes(self, bottom: Sequence[Blob]) -> tuple[np.ndarray, np.ndarray]:
        """All boxes (n, 4) and their scores (n,), in the order of rows, columns and anchors."""
        p, real, n_anchors = self.param.proposal_param, bottom[1].dtype, len(self._anchors)
        info = bottom[2].data.reshape(-1)
        height, width = bottom[0].shape[2:]
        scores = np.moveaxis(bottom[0].data[0, n_anchors:], 0, -1).reshape(-1)
        deltas = np.moveaxis(bottom[1].data[0], 0, -1).reshape(height, width, n_anchors, 4)
        anchors = all_anchors(self._anchors, height, width, p.feat_stride).astype(real)
        boxes = clipped(moved(anchors, deltas), info[0], info[1]).reshape(-1, 4)
        least = p.min_size * np.array([info[-1], info[2]])  # widths, heights
        large = (boxes[:, 2:] - boxes[:, :2] + 1 >= least).all(axis=1)
        return np.ascontiguousarray(boxes), np.where(large, scores, 0)

    @staticmethod
    def _show(top: Sequence[Blob], n_regions: int) -> None:
        top[0].reshape((n_regions, 5))
        if len(top) > 1:
            top[1].reshape((n_regions,))
