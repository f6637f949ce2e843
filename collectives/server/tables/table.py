"""Tables of the parameter server, and where the rows of a batch of keys lie. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.plan import bounds

DTYPES = ("float32", "float64")
Keys = Sequence[int] | np.ndarray | range | slice
"""Rows of a table; a slice as for a sequence of its keys."""


@dataclass(frozen=True)
class Table:
    """Rows of equal length and one dtype, with keys 0 to n_rows - 1, contiguous in memory.

    Attributes:
        name: unique among the tables; used in errors.
        n_rows, row_elems: number of rows, and elements in a row.
        dtype: "float32" or "float64".
        merges: whether its rule takes several workers' updates as one; see Rule.

    Raises:
        CommError: a length is below 1, or the dtype is another.
    """

    name: str
    n_rows: int
    row_elems: int
    dtype: str = "float32"
    merges: bool = True

    def __post_init__(self) -> None:
        for what in ("n_rows", "row_elems"):
            value = getattr(self, what)
            if not isinstance(value, (int, np.integer)) or value < 1:
                raise CommError(f"table {self.name!r}: {what} must be a whole number from 1 on, got {value!r}")
        if self.dtype not in DTYPES:
            raise CommError(f"table {self.name!r}: dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")

    @property
    def n_elems(self) -> int:
        return self.n_rows * self.row_elems

    def shard(self, number: int, n_shards: int) -> tuple[int, int]:
        """The interval [start, stop) of elements that shard ``number`` holds; shards differ by at most one element."""
        return bounds(number, n_shards, self.n_elems)


class Index:
    """Where the rows of a batch lie in their table: built once, used by every read and update.

    Consecutive keys are merged into one range, so a batch of consecutive keys is a single slice.

    Args:
        keys: in the order of the batch's buffers, without repeats. A range or slice of neighbours costs nothing,
            however long it is.

    Attributes:
        ranges: int64 (n_ranges, 3), rows of (offset in the table, offset in the buffer, n_elems), in buffer order; both
            offsets in elements.

    Raises:
        CommError: no keys, a key that is not in the table, or one given twice.
    """

    def __init__(self, table: Table, keys: Keys) -> None:
        self.table = table
        self.n_rows, ranges = _range_of(table, keys) if isinstance(keys, (range, slice)) else _ranges_of(table, keys)
        self.ranges = ranges * table.row_elems

    @property
    def n_elems(self) -> int:
        return self.n_rows * self.table.row_elems

    @property
    def is_slice(self) -> bool:
        return len(self.ranges) == 1

    def clipped(self, start: int, stop: int) -> np.ndarray:
        """The ranges clipped to elements [start, stop) of the table: the part of the batch that one shard holds."""
        first = np.maximum(self.ranges[:, 0], start)
        last = np.minimum(self.ranges[:, 0] + self.ranges[:, 2], stop)
        inside = first < last
        moved = first - self.ranges[:, 0]
        cut: np.ndarray = np.stack([first, self.ranges[:, 1] + moved, last - first], axis=1)[inside]
        return cut

    def shards(self, n_shards: int) -> tuple[int, ...]:
        return tuple(s for s in range(n_shards) if len(self.clipped(*self.table.shard(s, n_shards))))

    def keys(self) -> np.ndarray:
        """The rows' keys, int64 (n_rows,), in the order of the batch."""
        firsts, places, lengths = (self.ranges // self.table.row_elems).T
        keys: np.ndarray = np.repeat(firsts - places, lengths) + np.arange(self.n_rows)
        return keys

    def ascending(self) -> tuple[Index, np.ndarray | None]:
        """The same rows in the table's order, where consecutive keys make the longest ranges.

        Returns:
            Their index, and int64 (n_rows,): for each row of this batch its place there. This very index and None where
            the rows are in the table's order already.
        """
        if (self.ranges[1:, 0] > self.ranges[:-1, 0]).all():
            return self, None
        keys = self.keys()
        order = np.argsort(keys)
        return Index(self.table, keys[order]), np.argsort(order)

    def same_rows(self, other: Index) -> bool:
        return self.table == other.table and np.array_equal(self.ranges, other.ranges)

    def shares_rows(self, other: Index) -> bool:
        if self.table != other.table:
            return False
        mine, others = (index.ranges[np.argsort(index.ranges[:, 0])] for index in (self, other))
        after = np.searchsorted(others[:, 0], mine[:, 0] + mine[:, 2])  # the ranges that begin before mine end
        before = after[after > 0] - 1
        return bool((others[before, 0] + others[before, 2] > mine[after > 0, 0]).any())


def _range_of(table: Table, keys: range | slice) -> tuple[int, np.ndarray]:
    """As ``_ranges_of``, without an array of the keys where they are neighbours."""
    steps = range(*keys.indices(table.n_rows)) if isinstance(keys, slice) else keys
    if len(steps) == 0 or steps.step != 1:
        return _ranges_of(table, steps)
    for key in (steps[0], steps[-1]):
        if not 0 <= key < table.n_rows:
            raise _no_row(table, key)
    return len(steps), np.array([[steps.start, 0, len(steps)]], np.int64)


def _ranges_of(table: Table, keys: Sequence[int] | np.ndarray) -> tuple[int, np.ndarray]:
    """How many keys there are, and int64 (n_ranges, 3): consecutive keys as (first key, place in the batch, length)."""
    wanted = np.asarray(keys)
    if wanted.ndim != 1 or wanted.size == 0 or wanted.dtype.kind not in "iu":
        raise CommError(f"table {table.name!r}: expected a sequence of whole numbers as keys, got {keys!r:.60}")
    outside = wanted[(wanted < 0) | (wanted >= table.n_rows)]
    if outside.size:
        raise _no_row(table, int(outside[0]))
    wanted = wanted.astype(np.int64)
    values, counts = np.unique(wanted, return_counts=True)
    if (counts > 1).any():
        raise CommError(f"table {table.name!r}: key {values[counts > 1][0]} is given twice in one batch")
    starts = np.flatnonzero(np.diff(wanted, prepend=wanted[0] - 2) != 1)
    lengths = np.diff(starts, append=wanted.size)
    return int(wanted.size), np.stack([wanted[starts], starts, lengths], axis=1)


def _no_row(table: Table, key: int) -> CommError:
    return CommError(f"table {table.name!r} has no row {key}; its keys are 0 to {table.n_rows - 1}")


CHUNK_BYTES = 4 << 20
"""Length of a chunk with all its histories: memory that a second copy takes on either node besides itself."""


class HistoryChunk(NamedTuple):
    """All histories of an interval of a table. They are sent together, so that they are of one moment. ``start``,
    ``stop``: in elements of the shard's interval."""

    table: int
    start: int
    stop: int


def history_chunks(tables: Mapping[Table, int], shard: int, n_shards: int,
                   most_bytes: int = CHUNK_BYTES) -> list[HistoryChunk]:
    """The chunks of one shard, those of the first table first.

    Args:
        tables: in the order declared, with the number of histories that each one's rule keeps.
        shard, n_shards: the shard's number, and how many there are.
        most_bytes: of a chunk; one element with its histories if that is more.
    """
    found = []
    for number, (table, n_histories) in enumerate(tables.items()):
        start, stop = table.shard(shard, n_shards)
        if n_histories:
            n_elems = max(most_bytes // (n_histories * np.dtype(table.dtype).itemsize), 1)
            found += [HistoryChunk(number, at, min(at + n_elems, stop - start))
                      for at in range(0, stop - start, n_elems)]
    return found


def stage_bytes(tables: Mapping[Table, int], chunks: Sequence[HistoryChunk]) -> int:
    """Bytes of the longest chunk."""
    n_bytes = [n_histories * np.dtype(table.dtype).itemsize for table, n_histories in tables.items()]
    return max((n_bytes[chunk.table] * (chunk.stop - chunk.start) for chunk in chunks), default=0)
