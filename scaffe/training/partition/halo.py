"""The layers before and behind one whose windows reach over the borders of a rank's part: halo exchange, and crop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Context
from scaffe.training.partition.group import Group
from scaffe.training.partition.moves import Move
from scaffe.training.partition.windows import Window


class _Bordered(Move):
    """What both layers know: which part of the axis each rank owns, and which part its outputs are computed from.

    Args:
        param, context, group, length: see Move.
        window: of the layer between.
    """

    def __init__(self, param: Any, context: Context, group: Group, length: int, window: Window) -> None:
        super().__init__(param, context, group, length, window.cut)
        self.window = window
        n_outputs = window.outputs(length)
        self.reads = [window.reads(group.columns(n_outputs, rank), length) for rank in range(group.n_ranks)]
        self.owns = [self.place(rank) for rank in range(group.n_ranks)]
        self.mine = self.reads[group.rank]


class Halo(_Bordered):
    """Own part of an image → what own outputs need: neighbours' borders, and padding beyond the image.

    Backward sends the gradients of borders back to their owners, which add them.
    """

    def __init__(self, param: Any, context: Context, group: Group, length: int, window: Window) -> None:
        super().__init__(param, context, group, length, window)
        self._from = self._others([_common(owned, self.mine) for owned in self.owns])  # read of others' parts
        self._to = self._others([_common(self.owns[group.rank], read) for read in self.reads])  # what they read

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top."""
        top[0].reshape(self.with_length(bottom[0].shape, self.mine.stop - self.mine.start))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Exchange borders."""
        x, y, own = self.front(bottom[0].data), self.front(top[0].data), self.owns[self.group.rank]
        y[:, :max(-self.mine.start, 0)] = self.window.padding
        y[:, max(self.length - self.mine.start, 0):] = self.window.padding
        received = {rank: self._room(y, place) for rank, place in self._from.items()}
        sent = {rank: np.ascontiguousarray(x[:, _moved(place, own.start)]) for rank, place in self._to.items()}
        here = _common(own, self.mine)
        y[:, _moved(here, self.mine.start)] = x[:, _moved(here, own.start)]
        self.group.exchange(sent, received)
        for rank, place in self._from.items():
            y[:, _moved(place, self.mine.start)] = received[rank]

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Return borders' gradients."""
        if not propagate_down[0]:
            return
        gx, gy, own = self.front(bottom[0].diff), self.front(top[0].diff), self.owns[self.group.rank]
        received = {rank: self._room(gy, place) for rank, place in self._to.items()}
        sent = {rank: np.ascontiguousarray(gy[:, _moved(place, self.mine.start)])
                for rank, place in self._from.items()}
        gx[...] = 0
        here = _common(own, self.mine)
        gx[:, _moved(here, own.start)] = gy[:, _moved(here, self.mine.start)]
        self.group.exchange(sent, received)
        for rank, place in self._to.items():
            gx[:, _moved(place, own.start)] += received[rank]

    def _others(self, places: list[slice]) -> dict[int, slice]:
        return {rank: place for rank, place in enumerate(places)
                if rank != self.group.rank and place.start < place.stop}

    @staticmethod
    def _room(front: np.ndarray, place: slice) -> np.ndarray:
        return np.empty((front.shape[0], place.stop - place.start, *front.shape[2:]), front.dtype)


class Crop(_Bordered):
    """A layer's outputs for its own part and a halo → those of the own part."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top."""
        self._kept = _moved(self.place(), self.mine.start)
        top[0].reshape(self.with_length(bottom[0].shape, self.n_own))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Copy own part."""
        self.front(top[0].data)[...] = self.front(bottom[0].data)[:, self._kept]

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Outputs for the halo have no gradient here."""
        if propagate_down[0]:
            gradient = self.front(bottom[0].diff)
            gradient[...] = 0
            gradient[:, self._kept] = self.front(top[0].diff)


def _common(one: slice, other: slice) -> slice:
    """What two intervals have in common; one of no length if nothing."""
    start = max(one.start, other.start)
    return slice(start, max(min(one.stop, other.stop), start))


def _moved(place: slice, origin: int) -> slice:
    """An interval counted from another origin."""
    return slice(place.start - origin, place.stop - origin)
