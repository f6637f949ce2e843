"""Rows of detections, as all layers that find objects write them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob

COLUMNS = 7  # item, label, score, xmin, ymin, xmax, ymax


def show_detections(top: Blob, rows: Sequence[np.ndarray], n_items: int) -> None:
    """Shape a top as (1, 1, D, 7) and fill it; with no detection at all a row (item, -1, ...) of -1 for each item.

    Args:
        top: the top.
        rows: each item's detections, (n, 7).
        n_items: items in the batch.
    """
    found = np.concatenate([np.zeros((0, COLUMNS)), *rows])
    if not len(found):
        found = np.full((n_items, COLUMNS), -1.0)
        found[:, 0] = np.arange(n_items)
    top.reshape((1, 1, len(found), COLUMNS))
    top.data[...] = found
