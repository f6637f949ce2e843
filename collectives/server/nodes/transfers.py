"""Rows on their way between nodes: where they lie, and transfers of them in chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scaffe.collectives.planning.datatypes import OPS
from scaffe.collectives.server.memory.common import InMemory
from scaffe.collectives.server.memory.store import Store
from scaffe.collectives.server.tables.table import Index, Table
from scaffe.collectives.shared.kernels import combine2, gather_ranges, scatter_ranges


class ContiguousSpan:
    """Some ranges of an array's elements, seen as one contiguous span. ``starts``, ``lengths``: int64 (n_ranges,),
    offset in the array and elements of each range. Adjacent ones are merged."""

    def __init__(self, starts: np.ndarray, lengths: np.ndarray) -> None:
        first = np.flatnonzero(starts[1:] != starts[:-1] + lengths[:-1]) + 1
        first = np.concatenate([[0], first]) if len(starts) else np.zeros(0, np.int64)
        self.n_elems = int(lengths.sum())
        self._starts = starts[first]
        self._offsets = np.append((np.cumsum(lengths) - lengths)[first], self.n_elems)

    @classmethod
    def all_of(cls, array: np.ndarray) -> ContiguousSpan:
        return cls(np.zeros(1, np.int64), np.array([array.size]))

    def slice(self, at: int, n_elems: int) -> slice | None:
        """Where elements [at, at + n_elems) of the span lie in the array, if contiguous there; else None."""
        which = int(np.searchsorted(self._offsets, at, "right")) - 1 if len(self._starts) > 1 else 0
        if at + n_elems > self._offsets[which + 1]:
            return None
        start = int(self._starts[which]) + at - int(self._offsets[which])
        return slice(start, start + n_elems)

    def gather(self, array: np.ndarray, at: int, buffer: np.ndarray) -> None:
        gather_ranges(array, self._clipped(at, at + buffer.size), buffer)

    def scatter(self, buffer: np.ndarray, at: int, array: np.ndarray) -> None:
        scatter_ranges(array, self._clipped(at, at + buffer.size), buffer)

    def _clipped(self, at: int, stop: int) -> np.ndarray:
        """The ranges clipped to [at, stop), int64 (n_ranges, 3): offset in the array, offset from ``at`` on, length."""
        ranges = np.s_[np.searchsorted(self._offsets, at, "right") - 1 : np.searchsorted(self._offsets, stop, "left")]
        offsets = self._offsets[:-1][ranges]
        first = np.maximum(offsets, at)
        last = np.minimum(self._offsets[1:][ranges], stop)
        return np.stack([self._starts[ranges] + first - offsets, first - at, last - first], axis=1)


CHUNK_BYTES = 63 << 10
"""Below 64 KiB, Open MPI's eager limit over TCP. A longer message begins with a handshake, which waits behind the data
of the other direction on the same connection: two nodes that send to each other at once go at half the speed then."""
SUM = OPS.index("sum")


class Staging:
    """A pool of chunks of memory, for one thread. ``tier``: that of the tables that are sent and received."""

    def __init__(self, tier: InMemory | None = None) -> None:
        self._tier = tier or InMemory()
        self._free: list[np.ndarray] = []

    def take(self, n_elems: int, dtype: np.dtype) -> np.ndarray:
        """Memory for at most ``CHUNK_BYTES``, uninitialised."""
        whole = self._free.pop() if self._free else np.empty(CHUNK_BYTES, np.uint8)
        return whole[: n_elems * dtype.itemsize].view(dtype)

    def give_back(self, chunk: np.ndarray) -> None:
        """Gives a chunk from ``take`` back."""
        self._free.append(chunk.base)  # type: ignore[arg-type]

    def release(self, rows: np.ndarray) -> None:
        """Releases contiguous rows that have been sent, added or received; see ``InMemory.release``."""
        self._tier.release(np.array([rows.ctypes.data]), rows.nbytes)


class Transfer:
    """The base of sending and receiving rows; ``staging`` has memory for chunks that are not contiguous.

    Attributes:
        n_left: elements that have not been handed out yet.
        n_under_way: chunks handed out and not done.
        done: what ``Links`` calls when all chunks are done.
    """

    def __init__(self, span: ContiguousSpan, dtype: np.dtype, staging: Staging, done: Callable[[], None]) -> None:
        self._span, self._dtype, self._staging, self.done = span, dtype, staging, done
        self.n_left, self.n_under_way = span.n_elems, 0
        self._staged: dict[int, int] = {}  # chunks of ours, by address: the first element

    @property
    def is_done(self) -> bool:
        return not self.n_left and not self.n_under_way

    def _stage(self, at: int, n_elems: int) -> np.ndarray:
        chunk = self._staging.take(n_elems, self._dtype)
        self._staged[chunk.ctypes.data] = at
        return chunk

    def _advance(self) -> tuple[int, int]:
        """The next chunk: its first element and how many."""
        at = self._span.n_elems - self.n_left
        n_elems = min(self.n_left, CHUNK_BYTES // self._dtype.itemsize)
        self.n_left -= n_elems
        self.n_under_way += 1
        return at, n_elems


class Outgoing(Transfer):
    """Rows to send: the sum of some arrays' elements, in the order of the arrays. ``yields``: whether they wait for
    other rows to the same peer."""

    def __init__(self, arrays: Sequence[np.ndarray], span: ContiguousSpan, staging: Staging, done: Callable[[], None],
                 yields: bool = False) -> None:
        super().__init__(span, arrays[0].dtype, staging, done)
        self._arrays, self.yields = arrays, yields

    def next(self) -> np.ndarray:
        """The next chunk, contiguous; ``finish`` gives it back."""
        at, n_elems = self._advance()
        place = self._span.slice(at, n_elems)
        if place is not None and len(self._arrays) == 1:
            return self._arrays[0][place]
        total = self._stage(at, n_elems)
        self._span.gather(self._arrays[0], at, total)
        for array in self._arrays[1:]:
            self._add(array, place, at, total)
        for array in self._arrays if place is not None else ():
            self._staging.release(array[place])
        return total

    def finish(self, chunk: np.ndarray) -> None:
        self.n_under_way -= 1
        self._staging.release(chunk)
        if self._staged and self._staged.pop(chunk.ctypes.data, -1) >= 0:
            self._staging.give_back(chunk)

    def _add(self, array: np.ndarray, place: slice | None, at: int, total: np.ndarray) -> None:
        if place is not None:
            combine2(total, array[place], total, SUM)
            return
        part = self._staging.take(total.size, self._dtype)
        self._span.gather(array, at, part)
        combine2(total, part, total, SUM)
        self._staging.give_back(part)


class Incoming(Transfer):
    """Rows to receive into an array."""

    def __init__(self, array: np.ndarray, span: ContiguousSpan, staging: Staging, done: Callable[[], None]) -> None:
        super().__init__(span, array.dtype, staging, done)
        self._array = array

    def next(self) -> np.ndarray:
        """Memory for the next chunk, contiguous; ``finish`` takes it when it has been filled."""
        at, n_elems = self._advance()
        place = self._span.slice(at, n_elems)
        return self._stage(at, n_elems) if place is None else self._array[place]

    def finish(self, chunk: np.ndarray) -> None:
        self.n_under_way -= 1
        self._staging.release(chunk)
        at = self._staged.pop(chunk.ctypes.data, -1) if self._staged else -1
        if at >= 0:
            self._span.scatter(chunk, at, self._array)
            self._staging.give_back(chunk)


Place = tuple[np.ndarray, ContiguousSpan]
"""An array and the elements of it that are meant."""


class RowPlacement:
    """Finds where rows lie in a node's memory; results are cached. ``batches``: for each worker of all nodes, the
    indexes of its batches."""

    def __init__(self, store: Store, tables: Sequence[Table], batches: Sequence[Sequence[Index]],
                 n_shards: int) -> None:
        self.n_tables = len(tables)
        self._table_of = [tables.index(index.table) for index in batches[0]]
        self._store, self._tables, self._batches, self._n_shards = store, tables, batches, n_shards
        self._ranges: dict[tuple[int, int, int], tuple[ContiguousSpan, ContiguousSpan]] = {}

    def updated(self, batch: int, workers: Sequence[int], shard: int) -> tuple[list[np.ndarray], ContiguousSpan]:
        """Some workers' update buffers of a batch, whose rows are the same for all, and the part that a shard holds."""
        return [self._store.updates[w][batch] for w in workers], self._spans(batch, workers[0], shard)[1]

    def received(self, batch: int, worker: int, shard: int) -> Place:
        """Where a shard of this node gets the update that comes under a worker's number from another node."""
        array = self._store.received[shard, worker, batch]
        return array, ContiguousSpan.all_of(array)

    def read(self, batch: int, worker: int, shard: int) -> Place:
        """The part of a worker's batch that a shard holds, among the table's values."""
        return self._store.values[self._batches[worker][batch].table], self._spans(batch, worker, shard)[0]

    def held(self, table: int, shard: int) -> Place:
        start, stop = self._tables[table].shard(shard, self._n_shards)
        return self._store.values[self._tables[table]], ContiguousSpan(np.array([start]), np.array([stop - start]))

    def table_of(self, batch: int) -> int:
        return self._table_of[batch]

    def _spans(self, batch: int, worker: int, shard: int) -> tuple[ContiguousSpan, ContiguousSpan]:
        """The part of a batch that a shard holds: among the table's values, and in the batch's buffers."""
        key = batch, worker, shard
        if key not in self._ranges:
            index = self._batches[worker][batch]
            ranges = index.clipped(*index.table.shard(shard, self._n_shards))
            self._ranges[key] = ContiguousSpan(ranges[:, 0], ranges[:, 2]), ContiguousSpan(ranges[:, 1], ranges[:, 2])
        return self._ranges[key]
