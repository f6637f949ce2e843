"""Storage orders of blobs, seen from layers that only reinterpret shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob


def is_plain(blob: Blob) -> bool:
    """Whether storage order and Caffe's order put the elements in the same sequence."""
    return not blob.channels_last or blob.shape[1] == 1 or blob.count(2) == 1


def same_sequence(a: Blob, b: Blob) -> bool:
    """Whether two blobs of one count keep the same elements at the same flat places, so that memory can be shared."""
    if is_plain(a) and is_plain(b):
        return True
    return a.channels_last and b.channels_last and a.shape[:2] == b.shape[:2]


def pass_data(source: Blob, target: Blob) -> None:
    """Give the target the source's data, reinterpreted in Caffe's order; by sharing memory where that is enough."""
    if same_sequence(source, target):
        target.share_data(source)
    else:
        target.data[...] = source.data.reshape(target.shape)


def share_diff(source: Blob, target: Blob) -> bool:
    """Let the target's diff live in the source's memory if the sequences agree. Returns whether it does."""
    if same_sequence(source, target):
        target.share_diff(source)
        return True
    return False


def pass_diff_back(target: Blob, source: Blob) -> None:
    """Give the source the target's diff, reinterpreted in Caffe's order, where they do not share it."""
    source.diff[...] = target.diff.reshape(source.shape)


def same_memory(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays of one shape start at one place: a layer at work in place."""
    return _address(a) == _address(b)


def _address(array: Any) -> int:
    interface = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    return int(interface["data"][0])


def lies_channels_last(blob: Blob, axis: int = 1) -> bool:
    """Whether the blob's memory already has that axis innermost and the others in order."""
    return blob.channels_last and axis == 1


def channels_last(logical: np.ndarray, axis: int = 1) -> np.ndarray:
    """A blob's data or diff in Caffe's order as one row with that axis last: a view where it lies so, else a copy."""
    return np.moveaxis(logical, axis, -1).reshape(-1)


def put_channels_last(row: np.ndarray, blob: Blob, logical: np.ndarray, axis: int = 1) -> None:
    """Bring a row with that axis last back to a blob that lies otherwise; others hold it already."""
    if not lies_channels_last(blob, axis):
        moved = np.moveaxis(logical, axis, -1)
        moved[...] = row.reshape(moved.shape)
