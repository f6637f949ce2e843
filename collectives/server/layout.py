"""Which ranks are workers and which hold shards, and the layout of the memory that they share. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.server.mailbox import mailbox_bytes
from scaffe.collectives.server.memory import aligned
from scaffe.collectives.server.table import Index, Table


@dataclass(frozen=True)
class Roles:
    """Which ranks are workers and which hold shards.

    Attributes:
        workers, shards: ranks. The number of a worker or shard is its index in this list.
    """

    workers: tuple[int, ...]
    shards: tuple[int, ...]

    @classmethod
    def of(cls, n_ranks: int, n_servers: int) -> Roles:
        """Assign the roles.

        Args:
            n_ranks: number of ranks.
            n_servers: how many of the last ranks hold shards only, the others being workers only; with 0 every rank
                is a worker and holds a shard.

        Raises:
            CommError: no rank would be left as a worker.
        """
        if not 0 <= n_servers < max(n_ranks, 1):
            raise CommError(f"servers must be from 0 to {n_ranks - 1} on {n_ranks} ranks, so that one can work; "
                            f"got {n_servers}", everywhere=True)
        ranks = tuple(range(n_ranks))
        return cls(ranks[: n_ranks - n_servers], ranks[n_ranks - n_servers :] if n_servers else ranks)


@dataclass(frozen=True)
class Layout:
    """Layout of the shared memory. All offsets are in bytes from its start.

    Attributes:
        values: offset of each table's values.
        updates: offset of each worker's update buffer for each batch.
        shard_mail, worker_mail: offset of each shard's and each worker's mailbox.
        clocks: offset of the workers' clocks, one int64 per worker.
        n_slots: slots in every mailbox.
        n_bytes: total length.
    """

    values: tuple[int, ...]
    updates: tuple[tuple[int, ...], ...]
    shard_mail: tuple[int, ...]
    worker_mail: tuple[int, ...]
    clocks: int
    n_slots: int
    n_bytes: int


def lay_out(tables: Sequence[Table], batches: Sequence[Sequence[Index]], n_shards: int) -> Layout:
    """Lay out the shared memory.

    Args:
        tables: in the order declared.
        batches: for each worker, the indexes of its batches.
        n_shards: number of shards.
    """
    n_workers = len(batches)
    most = max((len(own) for own in batches), default=0)
    n_slots = 1 << (max(n_workers, n_shards) * (3 * most + 4)).bit_length()
    end = 0

    def take(n_bytes: int) -> int:
        nonlocal end
        start, end = end, end + aligned(n_bytes)
        return start

    return Layout(
        shard_mail=tuple(take(mailbox_bytes(n_slots)) for _ in range(n_shards)),
        worker_mail=tuple(take(mailbox_bytes(n_slots)) for _ in range(n_workers)),
        clocks=take(8 * n_workers), n_slots=n_slots,
        values=tuple(take(_bytes(table, table.n_elems)) for table in tables),
        updates=tuple(tuple(take(_bytes(index.table, index.n_elems)) for index in own) for own in batches),
        n_bytes=end)


def joint_batches(batches: Sequence[Sequence[Index]]) -> frozenset[int]:
    """The batches that name the same rows on every worker, where no other batch touches these rows (see Keeper)."""
    first = batches[0]
    same = [b for b, index in enumerate(first) if all(own[b].same_rows(index) for own in batches)]
    return frozenset(b for b in same if not any(
        first[b].shares_rows(other) for own in batches for c, other in enumerate(own) if c != b))


def _bytes(table: Table, n_elems: int) -> int:
    return n_elems * np.dtype(table.dtype).itemsize
