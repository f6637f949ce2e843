"""Matches prior boxes with true boxes, mines hard negatives, and computes the losses (SSD, Liu et al. 2016, 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.layers.activation.activations import sigmoid_cross_entropies, softmax
from scaffe.layers.detection.boxes import crosses_boundary

BIPARTITE, PER_PREDICTION = 0, 1  # MultiBoxLossParameter.MatchType
LEAST_OVERLAP = 1e-6  # a smaller one counts as 0
UNMATCHED, IGNORED = -1, -2


@dataclass(frozen=True)
class MatchOptions:
    """How boxes are matched: ``kind`` BIPARTITE, one box for each true box, or PER_PREDICTION, further boxes that
    overlap by ``threshold`` too; ``ignores_crossing`` leaves out boxes that reach over the image's edge."""

    kind: int
    threshold: float
    ignores_crossing: bool


def match_boxes(boxes: np.ndarray, truth: np.ndarray, options: MatchOptions) -> tuple[np.ndarray, np.ndarray]:
    """Match boxes (P, 4) with the true boxes (G, 4) of one image: int64 (P,), the true box of each, UNMATCHED or
    IGNORED; and (P,), its overlap with that box, or, without one, its largest overlap with any."""
    from scaffe.layers.kernels.cpu.boxes import match, overlap_table

    matches, best = np.full(len(boxes), UNMATCHED), np.zeros(len(boxes), boxes.dtype)
    if not len(truth):
        return matches, best
    if options.ignores_crossing:
        matches[crosses_boundary(boxes)] = IGNORED
    table = np.empty((len(boxes), len(truth)), boxes.dtype)
    overlap_table(np.ascontiguousarray(boxes), truth.astype(boxes.dtype), table)
    table[(table <= LEAST_OVERLAP) | (matches == IGNORED)[:, None]] = 0
    best[:] = table.max(axis=1)
    match(table, matches)
    taken = np.flatnonzero(matches >= 0)
    best[taken] = table[taken, matches[taken]]
    if options.kind == PER_PREDICTION:
        more = (matches == UNMATCHED) & (best > LEAST_OVERLAP) & (best >= boxes.dtype.type(options.threshold))
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
