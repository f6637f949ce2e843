"""Labels and the scores they belong to: shared by losses and accuracy."""

from __future__ import annotations

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError

FULL, VALID, BATCH_SIZE, NONE = 0, 1, 2, 3  # LossParameter.NormalizationMode


def by_position(array: np.ndarray, axis: int) -> np.ndarray:
    """(positions, classes) from an array in Caffe's order; a view where the memory allows it (channels-last does)."""
    return np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])


def put_by_position(rows: np.ndarray, axis: int, out: np.ndarray) -> None:
    """Write (positions, classes) back into an array in Caffe's order."""
    moved = np.moveaxis(out, axis, -1)
    moved[...] = rows.reshape(moved.shape)


def check_label_count(scores: Blob, labels: Blob, axis: int) -> int:
    """The class axis, counted from 0. Raises LayerError if it is out of range or labels are not one a position."""
    canonical = check_axis(scores, axis)
    n_positions = scores.count(0, canonical) * scores.count(canonical + 1)
    if n_positions != labels.n_elems:
        raise LayerError(f"wants one label a position, {n_positions} for scores {scores.shape} with classes along axis "
                         f"{canonical}; got labels {labels.shape}")
    return canonical


def check_axis(blob: Blob, axis: int) -> int:
    """The axis counted from 0. Raises LayerError if the blob has no such axis."""
    canonical = blob.axis(axis)
    if not 0 <= canonical < blob.ndim:
        raise LayerError(f"axis {axis} is out of range for a bottom of shape {blob.shape}")
    return canonical


def read_labels(labels: np.ndarray, n_classes: int, ignored: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Integer labels in Caffe's order, and which of them count; ignored ones read as 0.

    Raises LayerError for a label that is not in 0..n_classes-1 and not the ignored one.
    """
    whole = labels.reshape(-1).astype(np.int64)
    counts = np.ones_like(whole, bool) if ignored is None else whole != ignored
    wrong = counts & ((whole < 0) | (whole >= n_classes))
    if wrong.any():
        raise LayerError(f"label {whole[wrong][0]} is not one of the {n_classes} classes, 0 to {n_classes - 1}")
    return np.where(counts, whole, 0), counts


def normalizer(mode: int, n_outer: int, n_inner: int, n_valid: int) -> float:
    """What a loss is divided by, at least 1 (Caffe's LossParameter.normalization).

    Args:
        mode: FULL, VALID, BATCH_SIZE or NONE.
        n_outer: positions before the class axis (the batch).
        n_inner: positions after it.
        n_valid: labels that are not ignored.
    """
    return float(max({FULL: n_outer * n_inner, VALID: n_valid, BATCH_SIZE: n_outer, NONE: 1}[mode], 1))
