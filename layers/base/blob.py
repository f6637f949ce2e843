"""A blob: an array and its gradient, in Caffe's logical shape over a storage order of our choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from scaffe.layers.base.errors import LayerError

MOST_AXES = 32  # Caffe's kMaxBlobAxes
MOST_ELEMS = 2**31 - 1  # Caffe counts in C's int, and so do kernels
Shape = tuple[int, ...]
Zeros = Callable[[int, np.dtype], Any]


class Blob:
    """Data and diff of one Caffe blob.

    ``data`` and ``diff`` are views in Caffe's order, (N, C, H, W) for images, that write through.
    ``data_storage`` and ``diff_storage`` are the same memory as C-contiguous arrays in storage order, which is
    channels-last, (N, H, W, C), where ``channels_last`` holds and Caffe's own order elsewhere. Memory is
    taken (zeroed) on first touch and kept when the blob is reshaped to something no larger.

    Args:
        shape: Caffe's logical shape; () is a scalar of one element, as in Caffe.
        dtype: float32 for training, float64 for gradient checks.
        channels_last: storage order; None means: channels-last for four axes or more. Parameters pass False.
        zeros: gives memory, (n_elems, dtype) → a flat array of zeros; the backend's.
    """

    def __init__(self, shape: Sequence[int] = (0,), dtype: np.dtype | type = np.float32,
                 channels_last: bool | None = None, zeros: Zeros = np.zeros) -> None:
        self.dtype, self.zeros = np.dtype(dtype), zeros
        self._order = channels_last
        self._data: np.ndarray | None = None  # flat memory, at least n_elems long
        self._diff: np.ndarray | None = None
        self._cleared = False  # the diff counts as zero but is not yet written
        self._views: dict[str, np.ndarray] = {}
        self.shape: Shape = ()
        self.reshape(shape)

    # -- shape ---------------------------------------------------------------------------------------------
    def reshape(self, shape: Sequence[int]) -> None:
        """Take a new logical shape; contents are undefined after it unless the number of elements stays.

        Raises:
            LayerError: a shape that Caffe's Blob::Reshape refuses: a negative dimension, more than 32 axes, or more
                elements than 2^31 - 1. The blob keeps its old shape then.
        """
        self.shape, self.n_elems = checked_shape(shape)
        self.channels_last = len(self.shape) >= 4 if self._order is None else self._order
        self._views.clear()
        if self._data is not None and self._data.size < self.n_elems:
            self._data = None
        if self._diff is not None and self._diff.size < self.n_elems:
            self._diff = None

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def storage_shape(self) -> Shape:
        """The shape of the memory: (N, spatial..., C) where channels-last."""
        if not self.channels_last:
            return self.shape
        return (self.shape[0], *self.shape[2:], self.shape[1])

    def axis(self, index: int) -> int:
        """Caffe's CanonicalAxisIndex: a negative axis counted from the end."""
        return index + self.ndim if index < 0 else index

    def count(self, start: int = 0, end: int | None = None) -> int:
        """Product of the logical dimensions start..end-1."""
        return prod(self.shape[start:end])

    # -- memory --------------------------------------------------------------------------------------------
    @property
    def data_flat(self) -> np.ndarray:
        """The data's memory as one row in storage order."""
        if self._data is None:
            self._data = self.zeros(self.n_elems, self.dtype)
        return self._data[: self.n_elems]

    @property
    def diff_flat(self) -> np.ndarray:
        """The diff's memory as one row in storage order."""
        if self._diff is None:
            self._diff = self.zeros(self.n_elems, self.dtype)
        elif self._cleared:
            self._diff[: self.n_elems] = 0
        self._cleared = False
        return self._diff[: self.n_elems]

    @property
    def data_storage(self) -> np.ndarray:
        """The data as a contiguous array of ``storage_shape``."""
        return self._view("data_storage", lambda: self.data_flat.reshape(self.storage_shape))

    @property
    def diff_storage(self) -> np.ndarray:
        """The diff as a contiguous array of ``storage_shape``."""
        self.settle_diff()
        return self._view("diff_storage", lambda: self.diff_flat.reshape(self.storage_shape))

    @property
    def data(self) -> np.ndarray:
        """The data in Caffe's order: a view that writes through."""
        return self._view("data", lambda: self._logical(self.data_storage))

    @data.setter
    def data(self, value: np.ndarray) -> None:
        self.data[...] = value

    @property
    def diff(self) -> np.ndarray:
        """The diff in Caffe's order: a view that writes through."""
        self.settle_diff()
        return self._view("diff", lambda: self._logical(self.diff_storage))

    @diff.setter
    def diff(self, value: np.ndarray) -> None:
        self.diff[...] = value

    # -- clearing without writing ----------------------------------------------------------------------------
    def clear_diff(self) -> None:
        """Make the diff zero; zeros are written only when somebody looks, so that a kernel may write instead of add."""
        self._cleared = self._diff is not None

    def claim_diff(self) -> tuple[np.ndarray, bool]:
        """The flat diff for a kernel that accumulates, and whether it must overwrite (diff was just cleared) or add."""
        if self._diff is None:
            return self.diff_flat, False
        overwrite, self._cleared = self._cleared, False
        return self._diff[: self.n_elems], overwrite

    def settle_diff(self) -> None:
        """Write the zeros of a cleared diff that no kernel has claimed."""
        if self._cleared:
            _ = self.diff_flat

    def bind(self, data: np.ndarray, diff: np.ndarray) -> None:
        """Live in the given flat memory from now on (a slice of the net's parameter and gradient buffers)."""
        self.bind_data(data)
        self.bind_diff(diff)

    def bind_data(self, data: np.ndarray) -> None:
        """Keep the data in the given flat memory from now on; its contents are undefined until they are written."""
        self._data = self._long_enough(data)
        self._views.clear()

    def bind_diff(self, diff: np.ndarray) -> None:
        """Keep the diff in the given flat memory from now on."""
        self._diff = self._long_enough(diff)
        self._views.clear()

    def share_data(self, other: Blob) -> None:
        """Use the other blob's data memory. Raises LayerError where the other has fewer elements."""
        self._data = self._long_enough(other.data_flat)
        self._views.clear()

    def share_diff(self, other: Blob) -> None:
        """Use the other blob's diff memory. Raises LayerError where the other has fewer elements."""
        self._diff = self._long_enough(other.diff_flat)
        self._views.clear()

    def _long_enough(self, flat: np.ndarray) -> np.ndarray:
        if flat.size < self.n_elems:
            raise LayerError(f"{flat.size} elements of memory are too few for a blob of shape {self.shape}")
        return flat

    def _logical(self, storage: np.ndarray) -> np.ndarray:
        return np.moveaxis(storage, -1, 1) if self.channels_last else storage

    def _view(self, name: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        view = self._views.get(name)
        if view is None:
            view = self._views[name] = make()
        return view


def checked_shape(shape: Sequence[int]) -> tuple[Shape, int]:
    """A shape as a tuple and its number of elements. Raises LayerError for one that no blob can have."""
    if len(shape) > MOST_AXES:
        raise LayerError(f"a blob has at most {MOST_AXES} axes, got {len(shape)}")
    dims = tuple(int(n) for n in shape)
    if min(dims, default=0) < 0:
        raise LayerError(f"the dimensions of a blob are at least 0, got shape {dims}")
    n_elems = prod(dims)
    if max(n_elems, *dims, 0) > MOST_ELEMS:
        raise LayerError(f"a blob has at most {MOST_ELEMS} elements, and as many along an axis; got shape {dims}")
    return dims, n_elems


def claim_together(blobs: Sequence[Blob]) -> tuple[list[np.ndarray], bool]:
    """The flat diffs of several blobs for one kernel, and whether it must overwrite all of them or add to all.

    Where only some were cleared, those get their zeros and all are added to.
    """
    claimed = [blob.claim_diff() for blob in blobs]
    overwrite = all(fresh for _, fresh in claimed)
    for flat, fresh in claimed:
        if fresh and not overwrite:
            flat[...] = 0
    return [flat for flat, _ in claimed], overwrite
