"""Which prior box answers for which true box (SSD, Liu et al. 2016, section 2.2, "Matching strategy")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaffe.layers.detection.boxes import crosses_boundary

BIPARTITE, PER_PREDICTION = 0, 1  # MultiBoxLossParameter.MatchType
LEAST_OVERLAP = 1e-6  # a smaller one is none
UNMATCHED, IGNORED = -1, -2


@dataclass(frozen=True)
class MatchOptions:
    """How boxes are matched.

    Attributes:
        kind: BIPARTITE, one box for each true box; PER_PREDICTION, further boxes whose overlap is large enough too.
        threshold: the least overlap of those further boxes.
        ignores_crossing: boxes that reach over the image's edge are left out.
    """

    kind: int
    threshold: float
    ignores_crossing: bool


def match_boxes(boxes: np.ndarray, truth: np.ndarray, options: MatchOptions) -> tuple[np.ndarray, np.ndarray]:
    """Match boxes with the true boxes of one image.

    Args:
        boxes: (P, 4).
        truth: (G, 4).
        options: how.

    Returns:
        int64 (P,), the true box of each box, UNMATCHED or IGNORED; and (P,), its overlap with that box, or, without
        one, its largest overlap with any.
    """
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
