"""Average precision of detections, in the three ways of SSD's fork of Caffe (``ap_version``)."""

from __future__ import annotations

import numpy as np

from scaffe.errors import UserError

EPS = 1e-6  # a step in recall that is none
VERSIONS = ("11point", "MaxIntegral", "Integral")


def check_version(version: str) -> None:
    """Raise UserError for an unknown ``ap_version``."""
    if version not in VERSIONS:
        raise UserError(f"the solver's ap_version {version!r} is unknown; known: {', '.join(VERSIONS)}")


def average_precision(scores: np.ndarray, hits: np.ndarray, n_positive: int, version: str) -> float:
    """The area under the curve of precision over recall.

    Args:
        scores: (n,), of the detections of one class. Of equal scores the first counts first.
        hits: (n,), 1 for a detection that is right, 0 for one that is wrong.
        n_positive: number of true boxes.
        version: "11point", the mean of the largest precisions at a recall of at least 0, 0.1, ... 1 (PASCAL VOC 2007);
            "MaxIntegral", the integral over recall of the largest precision at no smaller recall (VOC 2012, ILSVRC);
            "Integral", that of the precision itself.

    Returns:
        from 0 to 1; 0 without detections or true boxes.
    """
    if not len(scores) or not n_positive:
        return 0.0
    right = np.cumsum(hits[np.argsort(-scores, kind="stable")])
    precision, recall = right / np.arange(1, len(right) + 1), right / n_positive
    best = np.maximum.accumulate(precision[::-1])[::-1]
    if version == "11point":
        first = np.searchsorted(recall, np.arange(11) / 10 - EPS)
        return float(np.append(best, 0)[first].mean())
    steps = np.diff(recall, prepend=0)
    return float(((best if version == "MaxIntegral" else precision) * steps * (steps > EPS)).sum())


def class_precisions(rows: np.ndarray, version: str) -> dict[int, float]:
    """The average precision of each class.

    Args:
        rows: (n, 5), what DetectionEvaluate gave for all images: (-1, label, number of true boxes, -1, -1) for each
            class and batch; (item, label, score, is right, is wrong) for each detection. Those neither right nor wrong
            do not count.
        version: as for ``average_precision``.

    Returns:
        label → average precision, labels ascending.
    """
    is_count = rows[:, 0] == -1
    counts, found = rows[is_count], rows[~is_count]
    found = found[(found[:, 3] != 0) | (found[:, 4] != 0)]
    precisions = {}
    for label in np.unique(counts[:, 1]):
        mine = found[found[:, 1] == label]
        n_positive = int(counts[counts[:, 1] == label, 2].sum())
        precisions[int(label)] = average_precision(mine[:, 2], mine[:, 3], n_positive, version)
    return precisions
