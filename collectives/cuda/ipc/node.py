"""Collectives among the ranks of one node on device memory that all of them have mapped: algorithm `M` on GPUs.

One rank per GPU works: it reduces its own part of all ranks' buffers in one kernel, in rank order, and writes the
result to every rank that wants it. With P GPUs each one's links carry P-1 parts in and P-1 parts out, and no message is
sent. Where ranks share a GPU, only the first of them works (or the root, if it is one of them): processes take turns on
a GPU, so a second process's kernel would only wait for its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from scaffe.collectives.cuda.cupy_types import DeviceArray
from scaffe.collectives.cuda.ipc.signals import DONE, READY, Signals
from scaffe.collectives.cuda.ipc.windows import DeviceWindows, WindowSlice
from scaffe.collectives.cuda.kernels import GatherRanks, kernels
from scaffe.collectives.planning import plan
from scaffe.collectives.planning.datatypes import dtype_name
from scaffe.collectives.shared.node import NodeCall, NodeGroup
from scaffe.collectives.shared.schedule import BY_PARTS, Part, Segment, clipped, segments

STAGE_BYTES = 32 << 20
"""A rank's staging window for buffers that are in no window. Assumed, not measured: a copy of it takes some 15 us at
4 TB/s, as long as the two meetings of the host threads."""
GRAIN_ELEMS = 64
"""Parts begin at multiples of this, so that kernels read whole packs of 16 bytes."""
PASSES_KEPT = 4096
PassKey = tuple[NodeCall, np.dtype[Any], int, int, tuple[int, int]]


class DeviceNode:
    """Collectives among the ranks of one node on device buffers, on one engine's communication stream."""

    def __init__(self, group: NodeGroup, windows: DeviceWindows, signals: Signals, cards: Sequence[str]) -> None:
        """All ranks of the node call it. ``cards``: the PCI bus id of each rank's GPU, in rank order."""
        self._group, self._windows, self._signals, self._cards = group, windows, signals, cards
        self._workers = [workers(cards, root) for root in range(group.n_ranks)]
        self._everyone = range(group.n_ranks)
        self._stage = windows.allocate(STAGE_BYTES, np.uint8)
        self._passes: dict[PassKey, list[Callable[[], None]]] = {}

    @property
    def how(self) -> str:
        return self._signals.how

    def run(self, collective: str, array: DeviceArray, op: str = "sum", root: int = 0,
            parts: tuple[Part, ...] = ()) -> None:
        """Queues one collective: in place where all ranks' arrays lie in one window, else through staging windows.

        Args:
            collective, op, root, parts: as in NodeGroup.run, which says what is raised.
            array: flat CuPy array, of the same length on all ranks; overwritten.
        """
        if self._group.n_ranks == 1:
            return
        found = self._windows.find(array)
        location = None if found is None else (found.serial, found.offset)
        call = NodeCall(collective, array.size, dtype_name(array.dtype), op, root, location, parts)
        if found is not None:
            self._pass(call, found, array.dtype, (0, array.size), 0)
        else:
            self._staged(call, array)

    def _staged(self, call: NodeCall, array: DeviceArray) -> None:
        slot = self._stage.view(array.dtype)
        stage = self._windows.locate(self._stage)
        for start in range(0, max(array.size, 1), slot.size):
            stop = min(start + slot.size, array.size)
            for part in self._segments(call, start, stop):
                if self._group.rank in part.sources:
                    slot[part.start - start : part.end - start] = array[part.start : part.end]
            self._pass(call, stage, array.dtype, (start, stop), start)
            for part in self._segments(call, start, stop):
                if self._group.rank in part.targets:
                    array[part.start : part.end] = slot[part.start - start : part.end - start]

    def _pass(self, call: NodeCall, where: WindowSlice, dtype: np.dtype[Any], interval: tuple[int, int],
              origin: int) -> None:
        """Elements of `interval`; element `origin` is the first at `where`."""
        working = self._workers[call.root]
        works = self._group.rank in working
        self._signals.announce(READY)
        self._group.meet(call)
        if works:
            self._signals.follow(READY, self._everyone)
            for queue_kernel in self._kernels(call, where, dtype, interval, origin):
                queue_kernel()
            self._signals.announce(DONE)
        self._group.meet(call)
        self._signals.follow(DONE, working)

    def _kernels(self, call: NodeCall, where: WindowSlice, dtype: np.dtype[Any], interval: tuple[int, int],
                 origin: int) -> list[Callable[[], None]]:
        """This rank's kernels, bound at the first such pass."""
        key = (call, dtype, where.serial, where.offset, interval)
        if key not in self._passes:
            if len(self._passes) >= PASSES_KEPT:
                self._passes = {}
            self._passes[key] = list(self._bound(call, where, dtype, interval, origin))
        return self._passes[key]

    def _bound(self, call: NodeCall, where: WindowSlice, dtype: np.dtype[Any], interval: tuple[int, int],
               origin: int) -> Iterator[Callable[[], None]]:
        for part in work_of(self._group.rank, call.collective, self._cards, call.n_elems, call.root, interval,
                            call.parts):
            offset = where.offset + (part.start - origin) * dtype.itemsize
            yield kernels().gathering(where.bases, offset, part.end - part.start, dtype, call.op, gather_ranks(part),
                                      is_remote=len(set(self._cards)) > 1)

    def _segments(self, call: NodeCall, start: int, stop: int) -> list[Segment]:
        return clipped(segments(call.collective, self._group.n_ranks, call.n_elems, call.root, call.parts), start, stop)


def workers(cards: Sequence[str], root: int) -> list[int]:
    """Picks the ranks that work, one per GPU: the root for its GPU, else the first rank on it (pure). ``cards``: which
    GPU each rank uses, in rank order. Returns ranks in ascending order."""
    first = {card: rank for rank, card in reversed(list(enumerate(cards)))} | {cards[root]: root}
    return sorted(first.values())


def work_of(rank: int, collective: str, cards: Sequence[str], n_elems: int, root: int,
            interval: tuple[int, int], owned: tuple[Part, ...] = ()) -> Iterator[Segment]:
    """Yields what `rank` does of a collective: its share of it, or the parts of the ranks on its GPU (pure).

    Args:
        cards: which GPU each rank uses, in rank order.
        root: of reduce and bcast.
        owned: the parts, as `schedule.segments` has them.

    Yields:
        Segments, in order; none where the rank does not work.
    """
    working = workers(cards, root)
    parts = segments(collective, len(cards), n_elems, root, owned)
    start, stop = interval
    if rank not in working:
        return
    if collective in BY_PARTS:
        yield from clipped([part for part in parts if cards[_owner(collective, part)] == cards[rank]], start, stop)
        return
    n_grains = -(-(stop - start) // GRAIN_ELEMS)
    bounds = plan.bounds(working.index(rank), len(working), n_grains)
    first, last = (start + grain * GRAIN_ELEMS for grain in bounds)
    yield from clipped(parts, first, min(last, stop))


def _owner(collective: str, part: Segment) -> int:
    return part.targets[0] if collective == "reduce_scatter" else part.sources[0]


def gather_ranks(part: Segment) -> GatherRanks:
    """Describes a segment's ranks as the gather kernel takes them: targets are consecutive but for one gap at most."""
    first, last = part.targets[0], part.targets[-1]
    left_out = set(range(first, last + 1)) - set(part.targets)
    return GatherRanks(part.sources[0], len(part.sources), first, last - first + 1,
                       left_out.pop() if left_out else -1)
