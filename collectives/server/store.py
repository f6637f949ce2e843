"""The memory that the ranks share: tables' values, workers' updates, mailboxes, clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.server.layout import lay_out
from scaffe.collectives.server.mailbox import Mailbox, mailbox_bytes
from scaffe.collectives.server.memory import common
from scaffe.collectives.server.table import Index, Table


class Store:
    """This rank's views of the shared memory. Collective: every rank creates one.

    The ranks must synchronise once (any collective will do) between creating it and using it.

    Args:
        ranks: the ranks that share it.
        tables: in the order declared.
        batches: for each worker, the indexes of its batches.
        n_shards: number of shards.

    Attributes:
        values: each table's values, flat.
        updates: for each worker and batch, the update buffer, flat.
        shard_mail, worker_mail: the mailbox of each shard and of each worker.
        clocks: int64 (n_workers,), finished iterations; used in error messages only.

    Raises:
        CommError: on every rank, if the memory cannot be allocated or mapped.
    """

    def __init__(self, ranks: Communicator, tables: Sequence[Table], batches: Sequence[Sequence[Index]],
                 n_shards: int) -> None:
        layout = lay_out(tables, batches, n_shards)
        memory = common(ranks, layout.n_bytes)

        def array(at: int, n_elems: int, dtype: str) -> np.ndarray:
            return memory[at : at + n_elems * np.dtype(dtype).itemsize].view(dtype)

        def mailboxes(starts: Sequence[int]) -> list[Mailbox]:
            return [Mailbox(memory[at : at + mailbox_bytes(layout.n_slots)], layout.n_slots) for at in starts]

        self.values = {table: array(at, table.n_elems, table.dtype)
                       for table, at in zip(tables, layout.values, strict=True)}
        self.updates = [[array(at, index.n_elems, index.table.dtype) for index, at in zip(own, places, strict=True)]
                        for own, places in zip(batches, layout.updates, strict=True)]
        self.shard_mail, self.worker_mail = mailboxes(layout.shard_mail), mailboxes(layout.worker_mail)
        self.clocks = array(layout.clocks, len(batches), "int64")
        for mailbox in [*self.shard_mail, *self.worker_mail] if ranks.rank == 0 else ():
            mailbox.prepare()

    def fill(self, given: Mapping[str, np.ndarray]) -> str:
        """Write the tables' initial values, by table name. Returns what is wrong with them, or an empty string."""
        by_name = {table.name: values for table, values in self.values.items()}
        for name, array in given.items():
            if name not in by_name:
                return f"values are given for table {name!r}; the tables are {', '.join(by_name) or 'none'}"
            if np.size(array) != by_name[name].size:
                return f"values of table {name!r}: expected {by_name[name].size} elements, got {np.size(array)}"
        for name, array in given.items():
            by_name[name][:] = np.ravel(array)
        return ""
