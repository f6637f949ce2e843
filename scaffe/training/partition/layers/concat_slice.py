"""Concat and Slice along the axis that the ranks of a replica share: pieces go where the index map says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.context import Context
from scaffe.training.partition.group import Group
from scaffe.training.partition.layers.redistribution import Redistribution
from scaffe.training.partition.planner.image_shares import IndexMap, Piece

Arrays = Sequence[np.ndarray | None]
"""A rank's own of each part, the axis that is cut behind the images; None for one that is not needed."""


class ConcatSlice(Redistribution):
    """What both layers do: bring own places of the parts to own places of the whole, and back."""

    sends_early = False  # pieces of several blobs travel together
    n_bottoms = n_tops = (1, None)

    def __init__(self, param: Any, context: Context, group: Group, index_map: IndexMap, cut: str) -> None:
        super().__init__(param, context, group, sum(index_map.lengths), cut)
        self._pieces = index_map.pieces(group.n_ranks)
        self._part_starts = [start + group.columns(length).start
                             for start, length in zip(index_map.starts, index_map.lengths, strict=False)]
        self.own_lengths = [len(range(length)[group.columns(length)]) for length in index_map.lengths]

    def bring(self, parts: Arrays, whole: np.ndarray, back: bool = False) -> None:
        """Own of each part → own of the whole, or ``back``: one message a pair of ranks."""
        me, to, coming = self.group.rank, dict[int, list[Piece]](), dict[int, list[Piece]]()
        read, write = (partial(self._in_part, parts), partial(self._in_whole, whole))[::-1 if back else 1]
        for piece in (piece for piece in self._pieces if parts[piece.part] is not None):
            source, target = (piece.part_rank, piece.whole_rank)[::-1 if back else 1]
            if source == me == target:
                write(piece)[...] = read(piece)
            elif source == me:
                to.setdefault(target, []).append(piece)
            elif target == me:
                coming.setdefault(source, []).append(piece)
        sent = {rank: np.concatenate([read(piece).reshape(-1) for piece in found]) for rank, found in to.items()}
        received = {rank: np.empty(sum(write(piece).size for piece in found), self.context.dtype)
                    for rank, found in coming.items()}
        self.group.exchange(sent, received)
        for rank, found in coming.items():
            at = 0
            for piece in found:
                place = write(piece)
                place[...] = received[rank][at:at + place.size].reshape(place.shape)
                at += place.size

    def _in_whole(self, whole: np.ndarray, piece: Piece) -> np.ndarray:
        start = self.place().start
        return whole[:, piece.start - start:piece.stop - start]

    def _in_part(self, parts: Arrays, piece: Piece) -> np.ndarray:
        part, start = parts[piece.part], self._part_starts[piece.part]
        if part is None:
            raise IndexError(piece.part)  # such pieces were left out
        return part[:, piece.start - start:piece.stop - start]


class ShardedConcat(ConcatSlice):
    """Concat along the axis that is cut: own places of each bottom → own places of the top."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape(self.with_length(bottom[0].shape, self.n_own))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.bring([self.front(blob.data) for blob in bottom], self.front(top[0].data))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        self.bring([self.front(blob.diff) if wanted else None
                    for blob, wanted in zip(bottom, propagate_down, strict=True)], self.front(top[0].diff), back=True)


class ShardedSlice(ConcatSlice):
    """Slice along the axis that is cut: own places of the bottom → own places of each top."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for blob, length in zip(top, self.own_lengths, strict=True):
            blob.reshape(self.with_length(bottom[0].shape, length))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.bring([self.front(blob.data) for blob in top], self.front(bottom[0].data), back=True)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            self.bring([self.front(blob.diff) for blob in top], self.front(bottom[0].diff))


CONCAT_AND_SLICE: dict[str, Callable[..., ConcatSlice]] = {"Concat": ShardedConcat, "Slice": ShardedSlice}
