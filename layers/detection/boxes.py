"""Boxes as arrays: offsets from prior boxes, ground truth, rows of detections; prior boxes matched with true ones, hard
negatives and the losses (SSD, Liu et al. 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.activation.activations import sigmoid_cross_entropies, softmax
from scaffe.layers.base.blob import Blob

CORNER, CENTER_SIZE, CORNER_SIZE = 1, 2, 3  # PriorBoxParameter.CodeType


def read_priors(blob: Blob) -> tuple[np.ndarray, np.ndarray]:
    """The prior boxes and their variances, both (P, 4), from a blob (1, 2, 4 P)."""
    boxes, variances = blob.data.reshape(2, -1, 4)
    return boxes, variances


def count_priors(blob: Blob) -> int:
    """P of a blob of prior boxes (1, 2, 4 P). Raises LayerError for another shape."""
    n_elems = blob.n_elems
    if blob.ndim < 3 or blob.shape[0] != 1 or blob.shape[1] != 2 or n_elems % 8 or not n_elems:
        raise LayerError(f"wants prior boxes of shape (1, 2, 4 P), got {blob.shape}")
    return n_elems // 8


def encode(code: int, priors: np.ndarray, variances: np.ndarray | None, boxes: np.ndarray) -> np.ndarray:
    """Boxes (n, 4) as offsets (n, 4) from prior boxes (n, 4), by CORNER, CENTER_SIZE or CORNER_SIZE, divided by the
    variances (n, 4) if given. Raises LayerError if the code divides by the size of a prior box without an area."""
    offsets: np.ndarray = boxes - priors
    if code != CORNER:
        sizes = prior_sizes(priors)
        offsets = offsets / np.tile(sizes, 2)
        if code == CENTER_SIZE:
            shifts = (_centres(boxes) - _centres(priors)) / sizes
            offsets = np.concatenate([shifts, np.log((boxes[:, 2:] - boxes[:, :2]) / sizes)], axis=1)
    return offsets if variances is None else offsets / variances


def decode(code: int, priors: np.ndarray, variances: np.ndarray | None, offsets: np.ndarray) -> np.ndarray:
    """Boxes (..., P, 4) from offsets of that shape, the inverse of ``encode``; priors and variances are (P, 4). Nothing
    is clipped to the image."""
    if variances is not None:
        offsets = variances * offsets
    if code != CENTER_SIZE:
        sides = 1 if code == CORNER else np.tile(prior_sizes(priors), 2)
        boxes: np.ndarray = priors + offsets * sides
        return boxes
    sizes = prior_sizes(priors)
    centres = offsets[..., :2] * sizes + _centres(priors)
    with np.errstate(over="ignore"):  # of nets that are not trained
        halves = np.exp(offsets[..., 2:]) * sizes / 2
    return np.concatenate([centres - halves, centres + halves], axis=-1)


def prior_sizes(priors: np.ndarray) -> np.ndarray:
    """Width and height of prior boxes, (P, 2). Raises LayerError if one is not above 0."""
    sizes: np.ndarray = priors[:, 2:] - priors[:, :2]
    wrong = np.flatnonzero(~(sizes > 0).all(axis=1))
    if len(wrong):
        raise LayerError(f"wants prior boxes with an area, got {priors[wrong[0]].tolist()} as number {wrong[0]}")
    return sizes


def crosses_boundary(boxes: np.ndarray) -> np.ndarray:
    """For each box (n, 4), whether a corner lies outside the image."""
    outside: np.ndarray = np.logical_or.reduce((boxes < 0) | (boxes > 1), axis=1)
    return outside


def _centres(boxes: np.ndarray) -> np.ndarray:
    centres: np.ndarray = (boxes[:, :2] + boxes[:, 2:]) / 2
    return centres


TRUTH_COLUMNS = 8
NO_ITEM = -1  # marks a row that is padding


@dataclass(frozen=True)
class Truth:
    """The true boxes of a batch, in the order of the rows: place in the batch and label, int64 (G,), box (G, 4), and
    whether it is marked difficult, bool (G,)."""

    items: np.ndarray
    labels: np.ndarray
    boxes: np.ndarray
    difficult: np.ndarray

    def of(self, item: int) -> Truth:
        """The true boxes of one item."""
        mine = self.items == item
        return Truth(self.items[mine], self.labels[mine], self.boxes[mine], self.difficult[mine])


def check_shape(blob: Blob) -> None:
    """Raise LayerError unless a blob holds rows of 8 numbers."""
    if blob.ndim < 1 or blob.shape[-1] != TRUTH_COLUMNS:
        raise LayerError(f"wants ground truth (1, 1, G, 8), got shape {blob.shape}")


def read_truth(blob: Blob, n_classes: int, background: int, with_difficult: bool = True) -> Truth:
    """The rows of ground truth (1, 1, G, 8), those marked difficult only if ``with_difficult``. Raises LayerError for a
    label that is no class, or is the background's."""
    rows = blob.data.reshape(-1, TRUTH_COLUMNS)
    rows = rows[rows[:, 0] != NO_ITEM]
    if not np.isfinite(rows).all():
        raise LayerError("wants ground truth of finite numbers, got others")
    labels = rows[:, 1].astype(np.int64)
    wrong = (labels < 0) | (labels >= n_classes) | (labels == background)
    if wrong.any():
        raise LayerError(f"label {labels[wrong][0]} of a true box is not one of the {n_classes} classes, or is the "
                         f"background's, {background}")
    difficult = rows[:, 7] != 0
    kept = rows[with_difficult | ~difficult]
    return Truth(kept[:, 0].astype(np.int64), kept[:, 1].astype(np.int64), np.ascontiguousarray(kept[:, 3:7]),
                 kept[:, 7] != 0)


COLUMNS = 7  # item, label, score, xmin, ymin, xmax, ymax


def show_detections(top: Blob, rows: Sequence[np.ndarray], n_items: int) -> None:
    """Shape a top as (1, 1, D, 7) and fill it with each item's detections, (n, 7); with none at all a row (item, -1,
    ...) of -1 for each item."""
    found = np.concatenate([np.zeros((0, COLUMNS)), *rows])
    if not len(found):
        found = np.full((n_items, COLUMNS), -1.0)
        found[:, 0] = np.arange(n_items)
    top.reshape((1, 1, len(found), COLUMNS))
    top.data[...] = found


BIPARTITE, PER_PREDICTION = 0, 1  # MultiBoxLossParameter.MatchType
LEAST_OVERLAP = 1e-6  # a smaller one counts as 0
UNMATCHED, IGNORED = -1, -2


def match_boxes(boxes: np.ndarray, truth: np.ndarray, p: Any) -> tuple[np.ndarray, np.ndarray]:
    """Match boxes (P, 4) with the true boxes (G, 4) of one image as a MultiBoxLossParameter message says: int64 (P,),
    the true box of each, UNMATCHED or IGNORED; and (P,), its overlap with that box, or without one its largest."""
    from scaffe.layers.kernels.cpu.boxes import match, overlap_table

    matches, best = np.full(len(boxes), UNMATCHED), np.zeros(len(boxes), boxes.dtype)
    if not len(truth):
        return matches, best
    if p.ignore_cross_boundary_bbox:
        matches[crosses_boundary(boxes)] = IGNORED
    table = np.empty((len(boxes), len(truth)), boxes.dtype)
    overlap_table(np.ascontiguousarray(boxes), truth.astype(boxes.dtype), table)
    table[(table <= LEAST_OVERLAP) | (matches == IGNORED)[:, None]] = 0
    best[:] = table.max(axis=1)
    match(table, matches)
    taken = np.flatnonzero(matches >= 0)
    best[taken] = table[taken, matches[taken]]
    if p.match_type == PER_PREDICTION:
        more = (matches == UNMATCHED) & (best > LEAST_OVERLAP) & (best >= boxes.dtype.type(p.overlap_threshold))
        matches[more] = table[more].argmax(axis=1)
    return matches, best


NONE, MAX_NEGATIVE, HARD_EXAMPLE = 0, 1, 2  # MultiBoxLossParameter.MiningType
LEAST_AREA = 1e-5  # smaller boxes are no candidates if overlapping ones are suppressed


def mine(p: Any, loss: np.ndarray, matches: np.ndarray, overlaps: np.ndarray,
         boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose the boxes of one image that count, from their losses (P,), the matches and overlaps of ``match_boxes``,
    and contiguous boxes (P, 4): the matches, perhaps fewer, and the unmatched boxes that count, int64, ascending.

    MAX_NEGATIVE takes, for each matched box, ``neg_pos_ratio`` of those unmatched boxes whose overlap with every true
    box is below ``neg_overlap``, the largest losses first. HARD_EXAMPLE takes the ``sample_size`` boxes of the largest
    loss, matched or not (Shrivastava, Gupta and Girshick 2016). With ``nms_param`` overlapping candidates are
    suppressed first, among the ``top_k`` of the largest loss; as in weiliu89/caffe, ``top_k`` is 0 if it is not
    given."""
    hard = p.mining_type == HARD_EXAMPLE
    eligible = np.flatnonzero(np.ones(len(matches), bool) if hard else
                              (matches == UNMATCHED) & (overlaps < overlaps.dtype.type(p.neg_overlap)))
    n_wanted = p.sample_size if hard else int((matches >= 0).sum() * np.float32(p.neg_pos_ratio))
    chosen = np.zeros(len(matches), bool)
    chosen[_worst(p, loss, eligible, boxes)[:max(0, n_wanted)]] = True
    left = np.where((matches >= 0) & ~chosen, UNMATCHED, matches) if hard else matches
    return left, np.flatnonzero(chosen & (matches == UNMATCHED))


def _worst(p: Any, loss: np.ndarray, eligible: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """The eligible boxes by falling loss; of equal losses the first comes first."""
    from scaffe.layers.kernels.cpu.boxes import suppress

    order = eligible[np.argsort(-loss[eligible], kind="stable")]
    if not p.HasField("nms_param") or not p.nms_param.nms_threshold > 0:
        return order
    if p.nms_param.top_k > -1:
        order = order[:p.nms_param.top_k]
    kept, of_type = np.empty(len(order), np.int64), boxes.dtype.type
    return kept[:suppress(boxes, order, of_type(p.nms_param.nms_threshold), of_type(1), of_type(LEAST_AREA), kept)]


L2, SMOOTH_L1 = 0, 1  # MultiBoxLossParameter.LocLossType
SOFTMAX, LOGISTIC = 0, 1  # MultiBoxLossParameter.ConfLossType


def location_loss(kind: int, difference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Loss and gradient of each offset from d, predicted minus true ones of any shape: L2, d² / 2; SMOOTH_L1, the same
    for |d| < 1 and |d| - 1/2 beyond."""
    if kind == L2:
        return difference * difference / 2, difference
    distance = np.abs(difference)
    near = distance < 1
    with np.errstate(over="ignore"):
        loss = np.where(near, difference * difference / 2, distance - difference.dtype.type(0.5))
    return loss, np.where(near, difference, np.sign(difference))


def class_loss(kind: int, scores: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The loss (n,) of each box's scores (n, classes), and the gradient of their sum, for targets (n, classes), 1 at a
    box's label: SOFTMAX, -log of the softmax, clamped at the least normal float32 as in Caffe; or LOGISTIC, the cross
    entropies of the sigmoids."""
    if kind == SOFTMAX:
        probabilities = softmax(scores, 1)
        true = (probabilities * targets).sum(axis=1)
        return -np.log(np.maximum(true, np.finfo(np.float32).tiny)), probabilities - targets
    with np.errstate(over="ignore"):
        sigmoid = 1 / (1 + np.exp(-scores))
    return sigmoid_cross_entropies(scores, targets).sum(axis=1), sigmoid - targets
