"""Layers that bring a blob from one way to lie on the ranks into another; backward brings its gradient back.

Gradients of columns and rows are the whole gradient of what a rank has. Of a blob that lies whole each rank has a
partial gradient, what its own columns of the next layer add, so that backward sums them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Context, Layer
from scaffe.training.partition.group import Group
from scaffe.training.partition.kinds import COLUMNS, ROWS, WHOLE


class Move(Layer):
    """What all moves have: the ranks, and the whole blob's columns.

    Args:
        param: names the layer and its blobs.
        context: the net's.
        group: the ranks of the replica.
        n_columns: of the whole blob; 0 where the bottom says it.
    """

    def __init__(self, param: Any, context: Context, group: Group, n_columns: int = 0) -> None:
        super().__init__(param, context)
        self.group, self.n_columns = group, n_columns

    def blocks(self, n_rows: int) -> np.ndarray:
        """Room for a block of columns a rank, each as long as the longest: (ranks, n_rows, columns), zeros."""
        width = -(-self.n_columns // self.group.n_ranks)
        return np.zeros((self.group.n_ranks, n_rows, width), self.context.dtype)

    def split(self, whole: np.ndarray, blocks: np.ndarray) -> None:
        """Write each rank's columns of (rows, n_columns) to its block."""
        for rank, block in enumerate(blocks):
            place = self.group.columns(self.n_columns, rank)
            block[:, :place.stop - place.start] = whole[:, place]

    def join(self, blocks: np.ndarray, whole: np.ndarray) -> None:
        """Write each rank's block to its columns of (rows, n_columns)."""
        for rank, block in enumerate(blocks):
            place = self.group.columns(self.n_columns, rank)
            whole[:, place] = block[:, :place.stop - place.start]


class RowsToWhole(Move):
    """Every rank's images to all ranks: (b, ...) → (G, ...)."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top."""
        top[0].reshape((bottom[0].shape[0] * self.group.n_ranks, *bottom[0].shape[1:]))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """All-gather."""
        self.group.block(top[0].data_flat)[...] = bottom[0].data_flat
        self.group.gather(top[0].data_flat)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Reduce-scatter the partial gradients."""
        if propagate_down[0]:
            self.group.scatter_sum(top[0].diff_flat)
            bottom[0].diff_flat[...] = self.group.block(top[0].diff_flat)


class ColumnsToWhole(Move):
    """Every rank's columns to all ranks: (G, own) → (G, n_columns)."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top."""
        top[0].reshape((bottom[0].shape[0], self.n_columns))
        self._blocks = self.blocks(bottom[0].shape[0])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """All-gather."""
        self._own()[...] = bottom[0].data
        self.group.gather(self._blocks)
        self.join(self._blocks, top[0].data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Reduce-scatter the partial gradients."""
        if propagate_down[0]:
            self.split(top[0].diff, self._blocks)
            self.group.scatter_sum(self._blocks)
            bottom[0].diff[...] = self._own()

    def _own(self) -> np.ndarray:
        place = self.group.columns(self.n_columns)
        return self._blocks[self.group.rank, :, :place.stop - place.start]


class RowsToColumns(Move):
    """All columns of own images for own columns of all images: (b, ...) → (G, own)."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top."""
        self.n_columns, n_rows = bottom[0].count(1), bottom[0].shape[0]
        place = self.group.columns(self.n_columns)
        top[0].reshape((n_rows * self.group.n_ranks, place.stop - place.start))
        self._sent, self._received = self.blocks(n_rows), self.blocks(n_rows)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Exchange blocks with every rank."""
        self.split(bottom[0].data.reshape(len(bottom[0].data), -1), self._sent)
        self.group.swap(self._sent, self._received)
        put_rows(self._received, top[0].data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Exchange the gradient's blocks back."""
        if propagate_down[0]:
            take_rows(top[0].diff, self._sent)
            self.group.swap(self._sent, self._received)
            gradient = np.empty((bottom[0].shape[0], self.n_columns), self.context.dtype)
            self.join(self._received, gradient)
            bottom[0].diff[...] = gradient.reshape(bottom[0].shape)


class ColumnsToRows(Move):
    """Own columns of all images for all columns of own images: (G, own) → (b, n_columns)."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top."""
        n_rows = bottom[0].shape[0] // self.group.n_ranks
        top[0].reshape((n_rows, self.n_columns))
        self._sent, self._received = self.blocks(n_rows), self.blocks(n_rows)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Exchange blocks with every rank."""
        take_rows(bottom[0].data, self._sent)
        self.group.swap(self._sent, self._received)
        self.join(self._received, top[0].data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Exchange the gradient's blocks back."""
        if propagate_down[0]:
            self.split(top[0].diff, self._sent)
            self.group.swap(self._sent, self._received)
            put_rows(self._received, bottom[0].diff)


class WholeToColumns(Move):
    """Own columns of what every rank has: (G, ...) → (G, own). In tests alone, so without a gradient."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top."""
        self.n_columns = bottom[0].count(1)
        self._place = self.group.columns(self.n_columns)
        top[0].reshape((bottom[0].shape[0], self._place.stop - self._place.start))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Copy."""
        top[0].data[...] = bottom[0].data.reshape(len(bottom[0].data), -1)[:, self._place]

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Nothing."""


def put_rows(blocks: np.ndarray, matrix: np.ndarray) -> None:
    """Write blocks (ranks, b, at least own) one below the other to a matrix (G, own)."""
    matrix.reshape(*blocks.shape[:2], -1)[...] = blocks[:, :, :matrix.shape[1]]


def take_rows(matrix: np.ndarray, blocks: np.ndarray) -> None:
    """Write a matrix (G, own) to blocks (ranks, b, at least own)."""
    blocks[:, :, :matrix.shape[1]] = matrix.reshape(*blocks.shape[:2], -1)


MOVES: dict[tuple[str, str], type[Move]] = {
    (ROWS, WHOLE): RowsToWhole, (COLUMNS, WHOLE): ColumnsToWhole, (ROWS, COLUMNS): RowsToColumns,
    (COLUMNS, ROWS): ColumnsToRows, (WHOLE, COLUMNS): WholeToColumns}
"""(how it lies, how it is needed) → the layer between."""
