"""The ranks of one node as a group that works on one another's device memory: algorithm `M` on GPUs.

Each rank reduces its own part of all ranks' buffers in one kernel, in rank order, and writes it to every rank that
wants it: with P ranks, P-1 parts in and as many out over each GPU's links, and no message at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import partition
from ..shared.node import NodeGroup
from ..shared.schedule import Segment, segments, within
from .kernels import Gathered, kernels
from .signals import DONE, READY, Signals
from .windows import DeviceWindows

STAGE_BYTES = 32 << 20
"""A rank's staging window for buffers that are not in one. Assumed, not measured: long enough to hide two meetings."""
GRAIN_ELEMS = 64
"""Parts begin at multiples of this, so that kernels read whole packs of 16 bytes."""


class DeviceNode:
    """Collectives among the ranks of one node on device buffers, on the communication stream of one engine."""

    def __init__(self, group: NodeGroup, windows: DeviceWindows, signals: Signals) -> None:
        """All ranks of the node call it. `group`: where their host threads meet."""
        self._group, self._windows, self._signals = group, windows, signals
        self._stage = windows.allocate(STAGE_BYTES, np.uint8)

    def run(self, collective: str, array: Any, op: str = "sum", root: int = 0) -> None:
        """Queue one collective on a flat CuPy array: in place where all ranks' lie in a window, else staged.

        Raises CommError on every rank when they come with different collectives, lengths, dtypes or places, and
        on the waiting ranks when a peer is dead or late.
        """
        if self._group.n_ranks == 1:
            return
        place = self._windows.find(array)
        lies = (place.serial, place.offset) if place else None
        wanted = (collective, array.size, array.dtype.name, op, root, lies)
        if place is not None:
            self._pass(wanted, place, array.dtype, (0, array.size), 0)
        else:
            self._staged(wanted, array)

    def _staged(self, wanted: tuple, array: Any) -> None:
        slot = self._stage.view(array.dtype)
        place = self._windows.find(self._stage)
        for start in range(0, max(array.size, 1), slot.size):
            stop = min(start + slot.size, array.size)
            for part in self._segments(wanted, start, stop):
                if self._group.rank in part.sources:
                    slot[part.start - start : part.end - start] = array[part.start : part.end]
            self._pass(wanted, place, array.dtype, (start, stop), start)
            for part in self._segments(wanted, start, stop):
                if self._group.rank in part.targets:
                    array[part.start : part.end] = slot[part.start - start : part.end - start]

    def _pass(self, wanted: tuple, place: Any, dtype: np.dtype, interval: tuple[int, int], origin: int) -> None:
        """Elements of `interval`; element `origin` is the first at `place`."""
        self._signals.announce(READY)
        self._group.meet(wanted)
        self._signals.follow(READY)
        collective, n_elems, _, op, root, _ = wanted
        for part in share(collective, self._group.rank, self._group.n_ranks, n_elems, root, interval):
            offset = place.offset + (part.start - origin) * dtype.itemsize
            kernels().gather(place.bases, offset, part.end - part.start, dtype, op, gathered(part))
        self._signals.announce(DONE)
        self._group.meet(wanted)
        self._signals.follow(DONE)

    def _segments(self, wanted: tuple, start: int, stop: int) -> list[Segment]:
        collective, n_elems, _, _, root, _ = wanted
        return within(segments(collective, self._group.n_ranks, n_elems, root), start, stop)


def share(collective: str, rank: int, n_ranks: int, n_elems: int, root: int,
          interval: tuple[int, int]) -> Iterator[Segment]:
    """What `rank` does of a collective's elements in `interval` (pure): its part of what all share, or its own."""
    parts = segments(collective, n_ranks, n_elems, root)
    start, stop = interval
    if len(parts) == n_ranks > 1:
        yield from within([parts[rank]], start, stop)
        return
    n_grains = -(-(stop - start) // GRAIN_ELEMS)
    first, last = (start + grain * GRAIN_ELEMS for grain in partition.bounds(rank, n_ranks, n_grains))
    yield from within(parts, first, min(last, stop))


def gathered(part: Segment) -> Gathered:
    """A segment's ranks as the kernel takes them: sources and targets are runs of ranks, targets with a gap at most."""
    first, last = part.targets[0], part.targets[-1]
    left_out = set(range(first, last + 1)) - set(part.targets)
    return part.sources[0], len(part.sources), first, last - first + 1, left_out.pop() if left_out else -1
