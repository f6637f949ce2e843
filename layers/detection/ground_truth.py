"""The boxes that a data layer says are in a batch (SSD): rows of item, label, instance, corners, difficult."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError

COLUMNS = 8
NO_ITEM = -1  # a row that fills up


@dataclass(frozen=True)
class Truth:
    """The true boxes of a batch, in the order of the rows.

    Attributes:
        items: int64 (G,), place in the batch.
        labels: int64 (G,).
        boxes: (G, 4).
        difficult: bool (G,).
    """

    items: np.ndarray
    labels: np.ndarray
    boxes: np.ndarray
    difficult: np.ndarray

    def of(self, item: int) -> Truth:
        """Those of one item."""
        mine = self.items == item
        return Truth(self.items[mine], self.labels[mine], self.boxes[mine], self.difficult[mine])


def check_shape(blob: Blob) -> None:
    """Raise LayerError unless a blob holds rows of 8 numbers."""
    if blob.ndim < 1 or blob.shape[-1] != COLUMNS:
        raise LayerError(f"wants ground truth (1, 1, G, 8), got shape {blob.shape}")


def read_truth(blob: Blob, n_classes: int, background: int, with_difficult: bool = True) -> Truth:
    """Read ground truth.

    Args:
        blob: (1, 1, G, 8).
        n_classes: labels lie in 0..n_classes-1.
        background: the label that no box may have.
        with_difficult: keep boxes that are marked difficult.

    Raises:
        LayerError: a label is the background's or no class.
    """
    rows = blob.data.reshape(-1, COLUMNS)
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
