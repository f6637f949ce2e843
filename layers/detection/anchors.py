"""Boxes around a feature map's positions in which objects are searched: PriorBox (SSD, Liu et al. 2016, 2.2); anchors,
and the boxes that they become (Faster R-CNN, Ren et al. 2015, section 3.1.2).

Boxes of Proposal are x1, y1, x2, y2 in pixels, both corners included, so that a box is x2 - x1 + 1 wide. Formulas:
rbgirshick/py-faster-rcnn, lib/rpn/generate_anchors.py and lib/fast_rcnn/bbox_transform.py; sanghoon/caffe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.bases import ZeroGradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types

SAME_RATIO = 1e-6  # aspect ratios that differ by less are the same
MOST_PIXELS = 1 << 24  # of a size: float32 counts pixels exactly up to here
VARIANCE = 0.1  # where none is given
Single = np.float32


@layer_types.register("PriorBox")
class PriorBox(ZeroGradient):
    """Boxes of several sizes and shapes around each position of a feature map.

    Bottoms: the feature map (N, C, H, W) and the image (N, C, height, width), of which only the shapes count; the image
    may be left out if ``img_size`` and ``step``, or img_h, img_w, step_h and step_w, are given. Top:
    (1, 2, 4 P), first the boxes' corners in fractions of the image, position after position, then their variances.

    At each position there is, for each ``min_size``: a square of that side; one of the side sqrt(min_size · max_size)
    if ``max_size`` is given; for each aspect ratio r other than 1 a box min_size · sqrt(r) wide and min_size / sqrt(r)
    high, and with ``flip`` one for 1 / r. As in weiliu89/caffe, sizes count in whole pixels: fractions are cut off.
    """

    n_bottoms = (1, 2)
    recordable = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.prior_box_param
        self._sizes = self._box_sizes(p)
        self._variances = _variances(p)
        self._image = _pair(p, ("img_size", "img_h", "img_w"))
        self._step = _pair(p, ("step", "step_h", "step_w"))

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if bottom[0].ndim != 4 or len(bottom) > 1 and bottom[1].ndim != 4:
            raise LayerError(f"wants a feature map and an image of 4 axes, got {[b.shape for b in bottom]}")
        if self._image is None and len(bottom) < 2:
            raise LayerError("needs the image as its second bottom, or img_size")
        image: Sequence[float] = self._image or bottom[1].shape[2:]
        if min(image) < 1:
            raise LayerError(f"wants an image of at least 1 x 1, got {image[0]} x {image[1]}")
        height, width = bottom[0].shape[2:]
        n_boxes = height * width * len(self._sizes)
        if not n_boxes:
            raise LayerError(f"wants a feature map with positions, got shape {bottom[0].shape}")
        top[0].reshape((1, 2, 4 * n_boxes))
        step = self._step or (float(Single(image[0]) / Single(height)), float(Single(image[1]) / Single(width)))
        boxes = place_boxes(self._sizes, (height, width), image, step, self.param.prior_box_param.offset)
        if self.param.prior_box_param.clip:
            boxes = np.clip(boxes, 0, 1)
        both = np.stack([boxes.reshape(-1), np.tile(self._variances, n_boxes)])
        self._priors = self.context.kernels.to_device(both.reshape(top[0].shape), top[0].dtype)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].data[...] = self._priors

    @staticmethod
    def _box_sizes(p: Any) -> np.ndarray:
        """Width and height in pixels of the boxes at one position: float32 (B, 2). Raises LayerError if there is no
        ``min_size``, one is not above 0, or a ``max_size`` does not fit its ``min_size``."""
        ratios = _ratios(p)
        smallest, largest = [_whole("min_size", x) for x in p.min_size], [_whole("max_size", x) for x in p.max_size]
        if not smallest:
            raise LayerError("needs a min_size")
        if largest and len(largest) != len(smallest):
            raise LayerError(f"wants one max_size for each min_size, got {len(largest)} for {len(smallest)}")
        sizes: list[tuple[float, float]] = []
        for i, side in enumerate(smallest):
            sizes.append((side, side))
            if largest:
                if not p.max_size[i] > p.min_size[i]:
                    raise LayerError(f"wants max_size above min_size, got {p.max_size[i]:g} and {p.min_size[i]:g}")
                sizes.append((np.sqrt(side * largest[i]),) * 2)
            sizes += [(side * np.sqrt(r), side / np.sqrt(r)) for r in ratios]
        return np.array(sizes, Single)


def place_boxes(sizes: np.ndarray, positions: tuple[int, int], image: Sequence[float], step: Sequence[float],
                offset: float) -> np.ndarray:
    """Corners, float64 (rows, columns, B, 4), in fractions of the image, of boxes of ``sizes`` (B, 2) around each
    position of a feature map of ``positions`` rows and columns. All other numbers are (height, width) in pixels: the
    image's, and the step from position to position; the first is ``offset`` steps from the corner."""
    rows, columns = ((np.arange(n, dtype=Single) + Single(offset)) * Single(s)
                     for n, s in zip(positions, step, strict=True))
    centres = np.stack(np.broadcast_arrays(columns[None, :], rows[:, None]), axis=-1)[:, :, None].astype(np.float64)
    halves, extent = sizes / 2.0, np.array([image[1], image[0]], np.float64)
    return np.concatenate([(centres - halves) / extent, (centres + halves) / extent], axis=-1)


def _ratios(p: Any) -> list[float]:
    """The aspect ratios other than 1, each once, with their inverses if they are flipped."""
    found = [1.0]
    for ratio in p.aspect_ratio:
        if not 0 < ratio < np.inf or not 0 < Single(1) / Single(ratio) < np.inf:
            raise LayerError(f"wants aspect ratios above 0, got {ratio:g}")
        if all(abs(ratio - other) >= SAME_RATIO for other in found):
            found += [ratio, 1 / ratio] if p.flip else [ratio]
    return [float(Single(ratio)) for ratio in found if abs(ratio - 1) >= SAME_RATIO]


def _whole(name: str, size: float) -> int:
    if not 0 < size <= MOST_PIXELS:
        raise LayerError(f"wants {name} above 0 and at most {MOST_PIXELS}, got {size:g}")
    return int(size)


def _variances(p: Any) -> np.ndarray:
    given = list(p.variance) or [VARIANCE]
    if len(given) not in (1, 4) or not all(0 < v < np.inf for v in given):
        raise LayerError(f"wants 1 or 4 variances above 0, got {[round(v, 6) for v in given]}")
    return np.array(given * (4 // len(given)))


def _pair(p: Any, names: tuple[str, str, str]) -> tuple[float, float] | None:
    """Height and width, given as one number for both or one each; None if they are not given."""
    both, *each = names
    given = [name for name in each if p.HasField(name)]
    if given and p.HasField(both):
        raise LayerError(f"takes {both}, or {each[0]} and {each[1]}, not both")
    if not given and not p.HasField(both):
        return None
    values = [getattr(p, name) for name in (each if given else [both, both])]
    if not all(0 < value < np.inf for value in values):
        wanted = " and ".join(each if given else [both])
        raise LayerError(f"wants {wanted} above 0, got {values[0]:g} and {values[1]:g}")
    return values[0], values[1]


@layer_types.register("PriorBoxClustered")
class PriorBoxClustered(PriorBox):
    """Boxes of each ``width`` x ``height``, in pixels, around each position of a feature map.

    Bottoms, top and the other options as of PriorBox; it takes no min_size, max_size or aspect_ratio.
    """

    @staticmethod
    def _box_sizes(p: Any) -> np.ndarray:
        """Width and height in pixels of the boxes at one position: float32 (B, 2). Raises LayerError unless there are
        widths, a height for each, and all are above 0."""
        sides: Sequence[float] = [*p.width, *p.height]
        if not p.width or len(p.width) != len(p.height) or not all(0 < side < np.inf for side in sides):
            raise LayerError(f"needs widths and heights above 0, as many of each, got {list(p.width)} and "
                             f"{list(p.height)}")
        return np.array([p.width, p.height], np.float32).T


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
