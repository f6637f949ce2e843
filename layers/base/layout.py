"""Storage orders of blobs, for layers that reinterpret shapes (Reshape, Flatten) or work along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob


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
