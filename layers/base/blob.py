"""Blobs: the data and diff arrays that layers exchange, and parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.writes import Writes


class KernelCopy:
    """A copy of weights in a half type and in the kernels' order (O, K..., I), flat; the blob has float32 in Caffe's
    order, which ``write`` converts. ``is_newest`` tells whether it is up to date, as after an update that wrote
    both."""

    def __init__(self, array: Any, write: Callable[[], None]) -> None:
        self.array, self._write = array, write
        self.is_newest = False

    def refreshed(self) -> Any:
        """The copy, brought up to date first. Forward reads it; backward reads ``array``, as that forward did."""
        if not self.is_newest:
            self._write()
        return self.array


MOST_AXES = 32  # Caffe's kMaxBlobAxes
MOST_ELEMS = 2**31 - 1  # Caffe counts in C's int, and so do kernels
Shape = tuple[int, ...]
Zeros = Callable[[int, np.dtype], Any]


class Blob:
    """Data and diff of one Caffe blob.

    ``data`` and ``diff`` are views in Caffe's order, (N, C, H, W) for images; writing to them writes the blob's
    memory. ``data_storage`` and ``diff_storage`` are the same memory as C-contiguous arrays in storage order:
    channels-last, (N, H, W, C), if ``channels_last`` is true, else Caffe's order. Memory is allocated, filled with
    zeros, at first use. It is reused when the blob is reshaped to as many elements or fewer.

    Args:
        shape: Caffe's logical shape; () is a scalar of one element, as in Caffe.
        dtype: element type: float32 or a half type for training, float64 for gradient checks.
        channels_last: storage order; None: channels-last for four axes or more. Parameters pass False.
        zeros: the backend's allocator: (n_elems, dtype) → a flat array of zeros.

    Attributes:
        writes: counts writes to the data by others than the net's passes.
        kernel_order: for weights that kernels read as (O, K, I), the sizes of I and K; else None.
        kernel_copy: a copy of the data as a half type's kernels read them; None if there is none.
        sign_bits: a bit of each element of the data (``SigningPlan``), where the pass that wrote these wrote those.
    """

    kernel_order: tuple[int, int] | None = None
    kernel_copy: KernelCopy | None = None
    sign_bits: Any = None

    def __init__(self, shape: Sequence[int] = (0,), dtype: np.dtype | type = np.float32,
                 channels_last: bool | None = None, zeros: Zeros = np.zeros) -> None:
        self.dtype, self.zeros = np.dtype(dtype), zeros
        self.writes = Writes()
        self._order = channels_last
        self._data: np.ndarray | None = None  # flat memory, at least n_elems long
        self._diff: np.ndarray | None = None
        self._cleared = False  # the diff counts as zero but is not yet written
        self._views: dict[str, np.ndarray] = {}
        self.shape: Shape = ()
        self.reshape(shape)

    # -- shape ---------------------------------------------------------------------------------------------
    def reshape(self, shape: Sequence[int]) -> None:
        """Take a new logical shape; the contents are undefined afterwards unless the number of elements is unchanged.
        Raises LayerError, and keeps the old shape, for one that Caffe's Blob::Reshape refuses: see
        ``checked_shape``."""
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
        """The shape of the memory: (N, spatial..., C) if channels-last, else the logical shape."""
        if not self.channels_last:
            return self.shape
        return (self.shape[0], *self.shape[2:], self.shape[1])

    def axis(self, index: int) -> int:
        """The axis counted from the front (Caffe's CanonicalAxisIndex): -1 is the last. The range is not checked."""
        return index + self.ndim if index < 0 else index

    def count(self, start: int = 0, end: int | None = None) -> int:
        """Product of the logical dimensions from ``start`` to before ``end`` (None: to the last)."""
        return prod(self.shape[start:end])

    # -- memory --------------------------------------------------------------------------------------------
    @property
    def data_flat(self) -> np.ndarray:
        """The data as a flat view (n_elems,) in storage order."""
        if self._data is None:
            self._data = self.zeros(self.n_elems, self.dtype)
        return self._data[: self.n_elems]

    @property
    def memory(self) -> np.ndarray | None:
        """The flat array whose first elements are the data; None if none is allocated yet."""
        return self._data

    @property
    def diff_flat(self) -> np.ndarray:
        """The diff as a flat view (n_elems,) in storage order."""
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
        self.write_cleared_diff()
        return self._view("diff_storage", lambda: self.diff_flat.reshape(self.storage_shape))

    @property
    def data(self) -> np.ndarray:
        """The data in Caffe's order: a view of the blob's memory, of shape ``shape``."""
        return self._view("data", lambda: self._logical(self.data_storage))

    @data.setter
    def data(self, value: np.ndarray) -> None:
        self.data[...] = value

    @property
    def diff(self) -> np.ndarray:
        """The diff in Caffe's order: a view of the blob's memory, of shape ``shape``."""
        self.write_cleared_diff()
        return self._view("diff", lambda: self._logical(self.diff_storage))

    @diff.setter
    def diff(self, value: np.ndarray) -> None:
        self.diff[...] = value

    # -- clearing without writing ----------------------------------------------------------------------------
    def clear_diff(self) -> None:
        """Make the diff zero without writing it yet: at the next read zeros are written, unless a kernel calls
        ``claim_diff`` before and overwrites the diff instead of adding to it, which saves a pass over the memory."""
        self._cleared = self._diff is not None

    @property
    def is_cleared(self) -> bool:
        """Whether the diff was cleared and has not been written or claimed since."""
        return self._cleared

    def claim_diff(self) -> tuple[np.ndarray, bool]:
        """Hand the flat diff to a kernel that accumulates into it; with True if the kernel must overwrite it (it was
        cleared)."""
        if self._diff is None:
            return self.diff_flat, False
        overwrite, self._cleared = self._cleared, False
        return self._diff[: self.n_elems], overwrite

    def write_cleared_diff(self) -> None:
        """Write the zeros of a cleared diff, unless a kernel has claimed it since."""
        if self._cleared:
            _ = self.diff_flat

    def bind(self, data: np.ndarray, diff: np.ndarray) -> None:
        """Use these flat arrays, slices of the net's parameter and gradient buffers, as the blob's memory from now on.
        Raises LayerError if one is too short."""
        self.bind_data(data)
        self.bind_diff(diff)

    def bind_data(self, data: np.ndarray) -> None:
        """Use the given flat array as the data's memory from now on. Raises LayerError if it is too short."""
        self._data = self._long_enough(data)
        self._views.clear()

    def change_memory(self, data: np.ndarray | None) -> np.ndarray | None:
        """Use other flat memory for the data from now on; None: the next use allocates some. Returns the old memory.
        Raises LayerError for an array with fewer elements than the blob."""
        before, self._data = self._data, None if data is None else self._long_enough(data)
        self._views.clear()
        return before

    def bind_diff(self, diff: np.ndarray | None) -> None:
        """Use the given flat array as the diff's memory from now on; None: the next use allocates some. Raises
        LayerError if it is too short."""
        self._diff = None if diff is None else self._long_enough(diff)
        self._views.clear()

    def share_data(self, other: Blob) -> None:
        """Use the other blob's data memory. Raises LayerError if the other has fewer elements."""
        self._data, self.writes = self._long_enough(other.data_flat), other.writes
        self._views.clear()

    def share_diff(self, other: Blob) -> None:
        """Use the other blob's diff memory. Raises LayerError if the other has fewer elements."""
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
    """The shape as a tuple, and its number of elements. Raises LayerError if Caffe allows no blob of that shape."""
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
    """Hand the diffs of several blobs to one kernel that accumulates into all: the flat diffs, and True if the kernel
    must overwrite all of them. If only some were cleared, zeros are written to those, and the kernel adds to all."""
    claimed = [blob.claim_diff() for blob in blobs]
    overwrite = all(fresh for _, fresh in claimed)
    for flat, fresh in claimed:
        if fresh and not overwrite:
            flat[...] = 0
    return [flat for flat, _ in claimed], overwrite
