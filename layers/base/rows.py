"""A blob as a matrix with one axis as columns: what softmax, batch norm and per-channel scales work on."""

from __future__ import annotations

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.labels import put_by_position


class Rows:
    """A blob's data or diff as (positions, columns): a view if the axis is innermost in memory, else a copy.

    Args:
        blob: any blob of the shape and storage order to work on.
        axis: the axis that becomes the columns, counted from 0.

    Attributes:
        n_rows, n_columns: of the matrix.
        is_view: whether rows are views of the blob's memory.
    """

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
