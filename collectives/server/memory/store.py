"""The memory that the ranks of a node share: tables' values, workers' updates, mailboxes, clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.server.memory.common import InFile, InMemory, common
from scaffe.collectives.server.memory.layout import TABLES, Key, contents, lay_out, mail_slots
from scaffe.collectives.server.protocol.mailbox import Mailbox
from scaffe.collectives.server.tables.roles import Roles
from scaffe.collectives.server.tables.table import Index, Table


class Store:
    """This rank's views of its node's memory. Collective: every rank creates one.

    The ranks must synchronise once (any collective will do) between creating it and using it.

    Args:
        tables: in the order declared, with the number of histories that each one's rule keeps.
        joint: the joint batches with slack 0; None with more.
        folder: where a file is to have the tables, histories and updates; empty: they are in memory.

    Attributes:
        values: each table's values, flat.
        histories: what the node's shards keep for a table's rule, by shard and table, flat, of the shard's interval.
        copies: second copies of other nodes' histories, as ``histories``.
        stages: by shard, the memory of a chunk on its way to the second copy, on both nodes.
        updates: the update buffers of the node's workers, flat, by worker, in the order of batches.
        received: what other nodes' workers push to the node's shards, flat, by shard, worker and batch.
        shard_mail, worker_mail: mailboxes of the node's shards and workers, by number.
        gateway_mail: mailboxes of the node's gateways, by rank; none on a single node.
        clocks: int64 (n_workers,), finished iterations as far as known here; used in error messages only.

    Raises:
        CommError: on every rank, if the memory cannot be allocated or mapped.
    """

    def __init__(self, ranks: Communicator, roles: Roles, tables: Mapping[Table, int],
                 batches: Sequence[Sequence[Index]], joint: frozenset[int] | None, folder: str = "") -> None:
        node = ranks.topology.node_of_rank[ranks.rank]
        held = contents(roles, node, tables, batches, joint)
        apart = {key: n_bytes for key, n_bytes in held.items() if folder and key[0] in TABLES}
        offsets, n_bytes = lay_out({key: n_bytes for key, n_bytes in held.items() if key not in apart})
        memory, n_slots = common(ranks, n_bytes), mail_slots(roles, batches)
        self.tier, in_file = InMemory(), memory[:0]
        if folder:
            places, n_bytes = lay_out(apart)
            self.tier = file = InFile(ranks, n_bytes, folder)
            offsets, in_file = offsets | places, file.memory

        def array(key: Key, dtype: str) -> np.ndarray:
            whole = in_file if key in apart else memory
            return whole[offsets[key] : offsets[key] + held[key]].view(dtype)

        def mailboxes(kind: str) -> dict[int, Mailbox]:
            return {int(key[1]): Mailbox(array(key, "uint8"), n_slots) for key in held if key[0] == kind}

        def histories(kind: str, shards: Sequence[int]) -> dict[tuple[int, Table], list[np.ndarray]]:
            return {(shard, table): [array((kind, shard, number, history), table.dtype)
                                     for history in range(tables[table])]
                    for shard in shards for number, table in enumerate(tables)}

        self.values = {table: array(("values", number), table.dtype) for number, table in enumerate(tables)}
        self.histories = histories("history", roles.shards_on(node))
        self.copies = histories("copy", roles.copies_on(node))
        self.stages = {int(key[1]): array(key, "uint8") for key in held if key[0] == "stage"}
        self.updates = {worker: [array(("update", worker, batch), index.table.dtype)
                                 for batch, index in enumerate(batches[worker])] for worker in roles.workers_on(node)}
        self.received = {(int(shard), int(worker), int(batch)): array(key, batches[int(worker)][int(batch)].table.dtype)
                         for key in held if key[0] == "received" for _, shard, worker, batch in [key]}
        self.shard_mail, self.worker_mail = mailboxes("shard"), mailboxes("worker")
        self.gateway_mail = mailboxes("gateway")
        self.clocks = array(("clocks",), "int64")
        for mail in (self.shard_mail, self.worker_mail, self.gateway_mail) if ranks.node_rank == 0 else ():
            for mailbox in mail.values():
                mailbox.prepare()

    def fill(self, given: Mapping[str, np.ndarray]) -> str:
        """Write the tables' initial values, by table name. Returns what is wrong with them, or an empty string."""
        by_name = {table.name: values for table, values in self.values.items()}
        for name, array in given.items():
            if name not in by_name:
                return f"values are given for table {name!r}; the tables are {', '.join(by_name) or 'none'}"
            if (kind := _dtype(array)) is None or kind.kind not in "fiub":
                return f"values of table {name!r}: expected numbers, got {kind or 'rows of different lengths'}"
            if np.size(array) != by_name[name].size:
                return f"values of table {name!r}: expected {by_name[name].size} elements, got {np.size(array)}"
        for name, array in given.items():
            values, flat = by_name[name], np.ravel(array)
            for chunk in self.tier.chunks(values):
                values[chunk] = flat[chunk]
        return ""


def _dtype(array: object) -> np.dtype | None:
    """The dtype that something has as an array; None if it cannot be one."""
    try:
        return np.asarray(array).dtype
    except ValueError:
        return None
