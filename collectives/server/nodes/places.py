"""Where the rows lie that go from one node to another: in this node's memory, for each batch and shard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.collectives.server.memory.store import Store
from scaffe.collectives.server.nodes.strip import Strip
from scaffe.collectives.server.tables.table import Index, Table

Place = tuple[np.ndarray, Strip]
"""An array and the elements of it that are meant."""


class Places:
    """Finds rows in a node's memory; what it has found once it knows.

    Args:
        store: the memory.
        tables: in the order declared.
        batches: for each worker of all nodes, the indexes of its batches.
        n_shards: number of shards.

    Attributes:
        n_tables: number of tables.
    """

    def __init__(self, store: Store, tables: Sequence[Table], batches: Sequence[Sequence[Index]],
                 n_shards: int) -> None:
        self.n_tables = len(tables)
        self._table_of = [tables.index(index.table) for index in batches[0]]
        self._store, self._tables, self._batches, self._n_shards = store, tables, batches, n_shards
        self._runs: dict[tuple[int, int, int], tuple[Strip, Strip]] = {}

    def updated(self, batch: int, workers: Sequence[int], shard: int) -> tuple[list[np.ndarray], Strip]:
        """Some workers' update buffers of a batch, which is the same for all, and the part that a shard holds."""
        return [self._store.updates[w][batch] for w in workers], self._strips(batch, workers[0], shard)[1]

    def received(self, batch: int, worker: int, shard: int) -> Place:
        """Where a shard of this node gets the update that comes under a worker's number from another node."""
        array = self._store.received[shard, worker, batch]
        return array, Strip.all_of(array)

    def read(self, batch: int, worker: int, shard: int) -> Place:
        """The part of a worker's batch that a shard holds, among the table's values."""
        return self._store.values[self._batches[worker][batch].table], self._strips(batch, worker, shard)[0]

    def held(self, table: int, shard: int) -> Place:
        """All that a shard holds of a table."""
        start, stop = self._tables[table].shard(shard, self._n_shards)
        return self._store.values[self._tables[table]], Strip(np.array([start]), np.array([stop - start]))

    def table_of(self, batch: int) -> int:
        """The number of a batch's table."""
        return self._table_of[batch]

    def _strips(self, batch: int, worker: int, shard: int) -> tuple[Strip, Strip]:
        """The part of a batch that a shard holds: among the table's values, and in the batch's buffers."""
        key = batch, worker, shard
        if key not in self._runs:
            index = self._batches[worker][batch]
            runs = index.within(*index.table.shard(shard, self._n_shards))
            self._runs[key] = Strip(runs[:, 0], runs[:, 2]), Strip(runs[:, 1], runs[:, 2])
        return self._runs[key]
