"""Which boxes without an object count in the loss: the worst ones (SSD, section 2.2, "Hard negative mining")."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.detection.matching import UNMATCHED

NONE, MAX_NEGATIVE, HARD_EXAMPLE = 0, 1, 2  # MultiBoxLossParameter.MiningType
LEAST_AREA = 1e-5  # smaller boxes are no examples where overlapping ones are suppressed


def mine(p: Any, loss: np.ndarray, matches: np.ndarray, overlaps: np.ndarray,
         boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose the boxes of one image that count.

    MAX_NEGATIVE takes, for each matched box, ``neg_pos_ratio`` of those unmatched boxes whose overlap with every true
    box is below ``neg_overlap``, the largest losses first. HARD_EXAMPLE takes the ``sample_size`` boxes of the largest
    loss, matched or not (Shrivastava, Gupta and Girshick 2016). With ``nms_param`` overlapping candidates are
    suppressed first, among the ``top_k`` of the largest loss; as in weiliu89/caffe, ``top_k`` is 0 if it is not given.

    Args:
        p: the MultiBoxLossParameter message.
        loss: (P,), of each box.
        matches: int64 (P,), as ``match_boxes`` returns them.
        overlaps: (P,), likewise.
        boxes: (P, 4), by which boxes overlap; contiguous.

    Returns:
        the matches, perhaps with fewer of them; and the unmatched boxes that count, int64, ascending.
    """
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
