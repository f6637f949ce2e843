"""The layers before and behind one whose windows reach over the borders of a rank's part: halo exchange, and crop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.collectives.request import Request
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.context import Context
from scaffe.training.partition.group import Group
from scaffe.training.partition.layers.redistribution import Redistribution
from scaffe.training.partition.planner.windows import Windows


class _Bordered(Redistribution):
    """What both layers know: which part of the axis each rank owns, and which part its outputs are computed from.

    Attributes:
        reads, owns: of each rank, the places that it needs of the bottom, and those that it has.
        mine: what this one needs.
        inside: those of them that need no halo.
    """

    def __init__(self, param: Any, context: Context, group: Group, length: int, window: Windows) -> None:
        super().__init__(param, context, group, length, window.cut)
        self.window = window
        n_outputs = window.outputs(length)
        self.reads = [window.reads(group.columns(n_outputs, rank), length) for rank in range(group.n_ranks)]
        self.owns = [self.place(rank) for rank in range(group.n_ranks)]
        self.mine, self.outputs = self.reads[group.rank], group.columns(n_outputs)
        self.inside = window.inside(self.outputs, self.owns[group.rank], length)


class Halo(_Bordered):
    """Own part of an image → what own outputs need: neighbours' borders, and padding beyond the image.

    Backward sends the gradients of borders back to their owners, which add them. ``is_awaited``: whether the reader
    calls ``arrive``, and computes before it what needs no borders."""

    is_awaited = False

    def __init__(self, param: Any, context: Context, group: Group, length: int, window: Windows) -> None:
        super().__init__(param, context, group, length, window)
        self._from = self._others([_common(owned, self.mine) for owned in self.owns])  # read of others' parts
        self._to = self._others([_common(self.owns[group.rank], read) for read in self.reads])  # what they read
        self._coming: Request | None = None
        self._received: dict[int, np.ndarray] = {}

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape(self.with_length(bottom[0].shape, self.mine.stop - self.mine.start))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, y, own = self.front(bottom[0].data), self.front(top[0].data), self.owns[self.group.rank]
        self._received = {rank: self._room(y, place) for rank, place in self._from.items()}
        sent = {rank: np.ascontiguousarray(x[:, moved(place, own.start)]) for rank, place in self._to.items()}
        self._coming = self.group.iexchange(sent, self._received)
        y[:, :max(-self.mine.start, 0)] = self.window.padding
        y[:, max(self.length - self.mine.start, 0):] = self.window.padding
        here = _common(own, self.mine)
        y[:, moved(here, self.mine.start)] = x[:, moved(here, own.start)]
        if not self.is_awaited:
            self.arrive(top[0])

    def arrive(self, top: Blob) -> None:
        """Wait for the borders, and write them."""
        if self._coming is None:
            return
        self.group.wait(self._coming, f"halo {self.param.name}")
        y, self._coming = self.front(top.data), None
        for rank, place in self._from.items():
            y[:, moved(place, self.mine.start)] = self._received[rank]

    def start_back(self, top: Blob) -> Request:
        gy = self.front(top.diff)
        self._received = {rank: self._room(gy, place) for rank, place in self._to.items()}
        return self.group.iexchange({rank: np.ascontiguousarray(gy[:, moved(place, self.mine.start)])
                                     for rank, place in self._from.items()}, self._received)

    def take_back(self, bottom: Blob, top: Blob) -> None:
        gx, gy, own = self.front(bottom.diff), self.front(top.diff), self.owns[self.group.rank]
        gx[...] = 0
        here = _common(own, self.mine)
        gx[:, moved(here, own.start)] = gy[:, moved(here, self.mine.start)]
        for rank, place in self._to.items():
            gx[:, moved(place, own.start)] += self._received[rank]

    def _others(self, places: list[slice]) -> dict[int, slice]:
        return {rank: place for rank, place in enumerate(places)
                if rank != self.group.rank and place.start < place.stop}

    @staticmethod
    def _room(front: np.ndarray, place: slice) -> np.ndarray:
        return np.empty((front.shape[0], place.stop - place.start, *front.shape[2:]), front.dtype)


class Crop(_Bordered):
    """A layer's outputs for its own part and a halo → those of the own part."""

    sends_early = False  # nothing travels

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        own = self.group.columns(self.window.outputs(self.length))
        self._kept = moved(own, self.window.first_output(self.mine))
        top[0].reshape(self.with_length(bottom[0].shape, own.stop - own.start))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.front(top[0].data)[...] = self.front(bottom[0].data)[:, self._kept]

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Outputs for the halo have no gradient here."""
        if propagate_down[0]:
            gradient = self.front(bottom[0].diff)
            gradient[...] = 0
            gradient[:, self._kept] = self.front(top[0].diff)


def _common(one: slice, other: slice) -> slice:
    start = max(one.start, other.start)
    return slice(start, max(min(one.stop, other.stop), start))


def moved(place: slice, origin: int) -> slice:
    """An interval counted from another origin."""
    return slice(place.start - origin, place.stop - origin)
