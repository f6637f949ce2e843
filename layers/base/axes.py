"""Views of blobs by position, along an axis and in storage order: labels, scores, rows of a matrix, broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.blob import Blob, Shape

FULL, VALID, BATCH_SIZE, NONE, PRE_FIXED = 0, 1, 2, 3, 4  # LossParameter.NormalizationMode


def by_position(array: np.ndarray, axis: int) -> np.ndarray:
    """An array in Caffe's order as (positions, classes), classes along ``axis``; a view if that axis is innermost."""
    return np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])


def put_by_position(rows: np.ndarray, axis: int, out: np.ndarray) -> None:
    """Write (positions, classes) to ``out``, in Caffe's order with classes along ``axis``."""
    moved = np.moveaxis(out, axis, -1)
    moved[...] = rows.reshape(moved.shape)


def check_label_count(scores: Blob, labels: Blob, axis: int) -> int:
    """The class axis, counted from 0. Raises LayerError unless it is in range and has classes, and there is one label
    for each position of the scores."""
    canonical = check_axis(scores, axis)
    n_positions = scores.count(0, canonical) * scores.count(canonical + 1)
    if not scores.shape[canonical]:
        raise LayerError(f"needs at least one class, got scores {scores.shape} with classes along axis {canonical}")
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


def check_n_axes(least: int, *blobs: Blob) -> None:
    """Raise LayerError for bottoms of fewer axes: Caffe's Blob::shape aborts where there is no such axis."""
    if min(blob.ndim for blob in blobs) < least:
        shapes = ", ".join(str(blob.shape) for blob in blobs)
        wanted = "1 axis" if least == 1 else f"{least} axes"
        raise LayerError(f"wants bottoms of at least {wanted}, got shapes {shapes}")


def read_labels(labels: np.ndarray, n_classes: int, ignored: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Labels of any shape and type as int64 (n,), 0 in place of those that are ``ignored``, and booleans (n,), False
    for these. Raises LayerError for another label outside 0..n_classes-1."""
    with np.errstate(invalid="ignore"):  # no number is no class, either
        whole = labels.reshape(-1).astype(np.int64)
    counts = np.ones_like(whole, bool) if ignored is None else whole != ignored
    wrong = counts & ((whole < 0) | (whole >= n_classes))
    if wrong.any():
        raise LayerError(f"label {whole[wrong][0]} is not one of the {n_classes} classes, 0 to {n_classes - 1}")
    return np.where(counts, whole, 0), counts


def normalization(options: Any) -> int:
    """The normalization mode of a LossParameter message; its older form ``normalize`` counts only without it."""
    if not options.HasField("normalization") and options.HasField("normalize"):
        return VALID if options.normalize else BATCH_SIZE
    return int(options.normalization)


def normalizer(mode: int, n_outer: int, n_inner: int, n_valid: int, fixed: float = 1.0) -> float:
    """The number that a summed loss is divided by, at least 1 (Caffe's LossParameter.normalization): ``n_outer``
    positions before the class axis (the batch), ``n_inner`` after it (pixels), ``n_valid`` labels that are not ignored,
    ``fixed`` for PRE_FIXED (R-FCN's fork)."""
    counts = {FULL: n_outer * n_inner, VALID: n_valid, BATCH_SIZE: n_outer, NONE: 1, PRE_FIXED: fixed}
    return float(max(counts[mode], 1))


def loss_divisor(options: Any, n_outer: int, n_inner: int, n_valid: int) -> float:
    """``normalizer`` for a LossParameter message."""
    return normalizer(normalization(options), n_outer, n_inner, n_valid, options.pre_fixed_normalizer)


class Rows:
    """A blob's data or diff as a matrix (n_rows, n_columns), whose columns are ``axis``, counted from 0: a view if the
    axis is innermost in memory (``is_view``), else a copy. For all blobs of the given one's shape and storage order."""

    def __init__(self, blob: Blob, axis: int) -> None:
        self._axis, self.n_columns = axis, blob.shape[axis]
        innermost = 1 if blob.channels_last else blob.ndim - 1
        self.is_view = axis == innermost or blob.count(axis + 1) == 1 and not blob.channels_last
        self.n_rows = blob.n_elems // max(self.n_columns, 1)

    def data(self, blob: Blob) -> np.ndarray:
        """The data as rows; to change the blob, write to them and then call ``put_data``."""
        return self._of(blob.data_flat) if self.is_view else self._copy(blob.data)

    def diff(self, blob: Blob) -> np.ndarray:
        """The diff as rows; to change the blob, write to them and then call ``put_diff``."""
        return self._of(blob.diff_flat) if self.is_view else self._copy(blob.diff)

    def put_data(self, rows: np.ndarray, blob: Blob) -> None:
        """Copy rows from ``data`` back to the blob, unless they are a view of it."""
        if not self.is_view:
            put_by_position(rows, self._axis, blob.data)

    def put_diff(self, rows: np.ndarray, blob: Blob) -> None:
        """Copy rows from ``diff`` back to the blob, unless they are a view of it."""
        if not self.is_view:
            put_by_position(rows, self._axis, blob.diff)

    def _of(self, flat: np.ndarray) -> np.ndarray:
        return flat.reshape(self.n_rows, self.n_columns)

    def _copy(self, logical: np.ndarray) -> np.ndarray:
        return np.moveaxis(logical, self._axis, -1).copy().reshape(self.n_rows, self.n_columns)


def covered_shape(blob: Blob, axis: int, num_axes: int) -> Shape:
    """The blob's dimensions of ``num_axes`` axes from ``axis`` on (-1: all). Raises LayerError if it has fewer."""
    if num_axes == 0:
        return ()
    first = check_axis(blob, axis)
    end = blob.ndim if num_axes == -1 else first + num_axes
    if num_axes < -1 or end > blob.ndim:
        raise LayerError(f"{num_axes} axes from axis {axis} on do not fit shape {blob.shape}")
    return blob.shape[first:end]


def spread_shape(blob: Blob, covered: Shape, axis: int) -> Shape:
    """``covered`` with ones before and after it, so that it broadcasts over the blob in Caffe's order. Raises
    LayerError if the blob's axes from ``axis`` on differ from ``covered``."""
    first = check_axis(blob, axis) if covered else 0
    if blob.shape[first:first + len(covered)] != covered:
        raise LayerError(f"shape {covered} does not fit the bottom {blob.shape} from axis {axis} on")
    return (*(1,) * first, *covered, *(1,) * (blob.ndim - first - len(covered)))


def summed_axes(spread: Shape, shape: Shape) -> tuple[int, ...]:
    """The axes over which a gradient of ``shape`` is summed to get the gradient of a factor of shape ``spread``."""
    return tuple(i for i, (s, n) in enumerate(zip(spread, shape, strict=True)) if s == 1 and n != 1)


def is_plain(blob: Blob) -> bool:
    """Whether the blob's elements lie in memory in Caffe's order."""
    return not blob.channels_last or blob.shape[1] == 1 or blob.count(2) == 1


def same_sequence(a: Blob, b: Blob) -> bool:
    """Whether two blobs of equal count, one a reshape of the other, hold elements of one type in the same memory
    order."""
    if a.dtype != b.dtype:
        return False
    if is_plain(a) and is_plain(b):
        return True
    return a.channels_last and b.channels_last and a.shape[:2] == b.shape[:2]


def pass_data(source: Blob, target: Blob) -> None:
    """Make the target's data the source's data, reshaped in Caffe's order. Shares memory if the orders agree."""
    if same_sequence(source, target):
        target.share_data(source)
    elif is_plain(target):  # whose reshape is a view
        target.data.reshape(source.shape)[...] = source.data
    else:
        target.data[...] = source.data.reshape(target.shape)


def share_diff(source: Blob, target: Blob) -> bool:
    """Let the target use the source's diff memory if their memory orders agree. Returns whether they do."""
    if same_sequence(source, target):
        target.share_diff(source)
        return True
    return False


def pass_diff_back(target: Blob, source: Blob) -> None:
    """Copy the target's diff to the source's, reshaped in Caffe's order; for blobs that do not share it."""
    source.diff[...] = target.diff.reshape(source.shape)


def same_memory(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays of equal shape start at the same address, as in a layer that works in place."""
    return _address(a) == _address(b)


def _address(array: Any) -> int:
    interface = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    return int(interface["data"][0])


def lies_channels_last(blob: Blob, axis: int = 1) -> bool:
    """Whether the blob's memory already has that axis innermost and the other axes in order."""
    return blob.channels_last and axis == 1


def channels_last(logical: np.ndarray, axis: int = 1) -> np.ndarray:
    """A blob's data or diff, given in Caffe's order, as a flat array with ``axis`` innermost; a view if possible."""
    return np.moveaxis(logical, axis, -1).reshape(-1)


def put_channels_last(row: np.ndarray, blob: Blob, logical: np.ndarray, axis: int = 1) -> None:
    """Copy a flat array from ``channels_last`` back to ``logical``, the blob's data or diff in Caffe's order, unless it
    was a view of the blob's memory."""
    if not lies_channels_last(blob, axis):
        moved = np.moveaxis(logical, axis, -1)
        moved[...] = row.reshape(moved.shape)


def weights_for_forward(blob: Blob) -> Any:
    """The weights for a plan's forward: the copy for kernels if there is one, brought up to date, else the data."""
    return blob.data if blob.kernel_copy is None else blob.kernel_copy.refreshed()


def weights_for_backward(blob: Blob) -> Any:
    """The weights that the last forward read."""
    return blob.data if blob.kernel_copy is None else blob.kernel_copy.array
