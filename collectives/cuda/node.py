"""The ranks of one node as a group that works on one another's device memory: algorithm `M` on GPUs.

One rank for each GPU works: it reduces its own part of all ranks' buffers in one kernel, in rank order, and writes it
to every rank that wants it. With P GPUs, P-1 parts come in and as many go out over each one's links, and there is no
message at all. Where ranks share a GPU, the first of them works, or the root: processes take turns on a GPU, so that
each further one's kernel would only wait for its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from scaffe.collectives.cuda.kernels import Gathered, kernels
from scaffe.collectives.cuda.signals import DONE, READY, Signals
from scaffe.collectives.cuda.windows import DeviceWindows, Place
from scaffe.collectives.planning import partition
from scaffe.collectives.planning.datatypes import dtype_name
from scaffe.collectives.shared.node import NodeGroup
from scaffe.collectives.shared.schedule import Segment, segments, within

STAGE_BYTES = 32 << 20
"""A rank's staging window for buffers that are not in one. Assumed, not measured: a copy of it takes some 15 us at 4
TB/s, as long as two meetings."""
GRAIN_ELEMS = 64
"""Parts begin at multiples of this, so that kernels read whole packs of 16 bytes."""
PASSES_KEPT = 4096


class DeviceNode:
    """Collectives among the ranks of one node on device buffers, on the communication stream of one engine."""

    def __init__(self, group: NodeGroup, windows: DeviceWindows, signals: Signals, cards: Sequence[str]) -> None:
        """All ranks of the node call it. `group`: where their host threads meet; `cards`: which GPU each rank has."""
        self._group, self._windows, self._signals, self._cards = group, windows, signals, cards
        self._working = [workers(cards, root) for root in range(group.n_ranks)]
        self._everyone = range(group.n_ranks)
        self._stage = windows.allocate(STAGE_BYTES, np.uint8)
        self._passes: dict[tuple, list[Callable[[], None]]] = {}

    @property
    def how(self) -> str:
        """How the ranks' streams follow one another, in words."""
        return self._signals.how

    def run(self, collective: str, array: Any, op: str = "sum", root: int = 0) -> None:
        """Queue one collective on a flat CuPy array: in place where all ranks' lie in a window, else staged.

        Raises CommError on every rank when they come with different collectives, lengths, dtypes or places, and
        on the waiting ranks when a peer is dead or late.
        """
        if self._group.n_ranks == 1:
            return
        place = self._windows.find(array)
        lies = (place.serial, place.offset) if place else None
        wanted = (collective, array.size, dtype_name(array.dtype), op, root, lies)
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
        working = self._working[wanted[4]]
        works = self._group.rank in working
        self._signals.announce(READY)
        self._group.meet(wanted)
        if works:
            self._signals.follow(READY, self._everyone)
            for queue_kernel in self._kernels(wanted, place, dtype, interval, origin):
                queue_kernel()
            self._signals.announce(DONE)
        self._group.meet(wanted)
        self._signals.follow(DONE, working)

    def _kernels(self, wanted: tuple, place: Place, dtype: np.dtype, interval: tuple[int, int],
                 origin: int) -> list[Callable[[], None]]:
        """This rank's kernels, made at the first such pass."""
        key = (wanted[0], wanted[3], wanted[4], wanted[1], dtype, place.serial, place.offset, interval)
        if key not in self._passes:
            if len(self._passes) >= PASSES_KEPT:
                self._passes = {}
            self._passes[key] = list(self._made(wanted, place, dtype, interval, origin))
        return self._passes[key]

    def _made(self, wanted: tuple, place: Place, dtype: np.dtype, interval: tuple[int, int],
              origin: int) -> Iterator[Callable[[], None]]:
        collective, n_elems, _, op, root, _ = wanted
        for part in share(collective, self._group.rank, self._cards, n_elems, root, interval):
            offset = place.offset + (part.start - origin) * dtype.itemsize
            yield kernels().gathering(place.bases, offset, part.end - part.start, dtype, op, gathered(part))

    def _segments(self, wanted: tuple, start: int, stop: int) -> list[Segment]:
        collective, n_elems, _, _, root, _ = wanted
        return within(segments(collective, self._group.n_ranks, n_elems, root), start, stop)


def workers(cards: Sequence[str], root: int) -> list[int]:
    """The ranks that work, one for each of the GPUs that `cards` tells for every rank (pure): root, else the first."""
    first = {card: rank for rank, card in reversed(list(enumerate(cards)))} | {cards[root]: root}
    return sorted(first.values())


def share(collective: str, rank: int, cards: Sequence[str], n_elems: int, root: int,
          interval: tuple[int, int]) -> Iterator[Segment]:
    """What `rank` does of a collective's elements in `interval` (pure), nothing where it does not work: its part of
    what all workers share, or the parts of the ranks on its GPU."""
    working, n_ranks = workers(cards, root), len(cards)
    parts = segments(collective, n_ranks, n_elems, root)
    start, stop = interval
    if rank not in working:
        return
    if len(parts) == n_ranks > 1:
        yield from within([part for part, card in zip(parts, cards) if card == cards[rank]], start, stop)
        return
    n_grains = -(-(stop - start) // GRAIN_ELEMS)
    bounds = partition.bounds(working.index(rank), len(working), n_grains)
    first, last = (start + grain * GRAIN_ELEMS for grain in bounds)
    yield from within(parts, first, min(last, stop))


def gathered(part: Segment) -> Gathered:
    """A segment's ranks as the kernel takes them: sources and targets are runs of ranks, targets with a gap at most."""
    first, last = part.targets[0], part.targets[-1]
    left_out = set(range(first, last + 1)) - set(part.targets)
    return part.sources[0], len(part.sources), first, last - first + 1, left_out.pop() if left_out else -1
