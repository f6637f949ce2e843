"""What lies in the memory that a node's ranks share, and where. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized

import numpy as np

from scaffe.collectives.server.memory.common import aligned
from scaffe.collectives.server.protocol.mailbox import mailbox_bytes
from scaffe.collectives.server.protocol.messages import Source
from scaffe.collectives.server.tables.roles import Roles
from scaffe.collectives.server.tables.table import Index, Table, history_chunks, stage_bytes

TABLES = frozenset({"values", "history", "copy", "update", "received"})
"""The first words of the keys of what is as long as tables; see ``contents``."""
Key = tuple[str | int, ...]
"""What lies somewhere: a word, and numbers of shards, workers, batches or tables."""


def mail_slots(roles: Roles, batches: Sequence[Sized]) -> int:
    """Slots of a mailbox that holds all messages that all senders may send before they wait for an answer."""
    most = max((len(own) for own in batches), default=0)
    n_nodes = roles.topology.n_nodes
    n_senders = max(len(roles.workers), len(roles.shards)) * (1 if n_nodes == 1 else 2)
    return 1 << (n_senders * (3 * most + 5)).bit_length()


def contents(roles: Roles, node: int, tables: Mapping[Table, int], batches: Sequence[Sequence[Index]],
             joint: frozenset[int] | None) -> dict[Key, int]:
    """What the memory of one node holds.

    Args:
        tables: in the order declared, with the number of histories that each one's rule keeps.
        batches: for each worker of all nodes, the indexes of its batches.
        joint: the joint batches with slack 0; None with more.

    Returns:
        Bytes by key: ("shard", number), ("worker", number) and ("gateway", rank) are mailboxes; ("clocks",) has an
        int64 for each worker of all nodes; ("values", table's number) are whole tables, of which the node's shards
        hold parts and the rest is a copy; ("history", shard, table's number, number) is what one of the node's shards
        keeps for a rule; ("update", worker, batch) are update buffers of the node's workers;
        ("received", shard, worker, batch) has place for what one of the node's shards gets from other nodes under a
        worker's number; ("copy", shard, table's number, number) are second copies of other nodes' histories, and
        ("stage", shard) has place for a chunk of what is copied, on both nodes.
    """
    mailbox = mailbox_bytes(mail_slots(roles, batches))
    found: dict[Key, int] = {("shard", shard): mailbox for shard in roles.shards_on(node)}
    found |= {("worker", worker): mailbox for worker in roles.workers_on(node)}
    if roles.topology.n_nodes > 1:
        found |= {("gateway", rank): mailbox for rank in roles.topology.nodes[node]}
    found["clocks",] = 8 * len(roles.workers)
    found |= {("values", number): _bytes(table, table.n_elems) for number, table in enumerate(tables)}
    found |= {("history", shard, number, history): _bytes(table, stop - start) for shard in roles.shards_on(node)
              for number, (table, n_histories) in enumerate(tables.items()) for history in range(n_histories)
              for start, stop in [table.shard(shard, len(roles.shards))]}
    found |= _copies(roles, node, tables)
    found |= {("update", worker, batch): _bytes(index.table, index.n_elems)
              for worker in roles.workers_on(node) for batch, index in enumerate(batches[worker])}
    found |= {key: _bytes(index.table, n_elems) for key, index, n_elems in _received(roles, node, batches, joint)}
    return found


def _copies(roles: Roles, node: int, tables: Mapping[Table, int]) -> dict[Key, int]:
    n_shards = len(roles.shards)
    found: dict[Key, int] = {
        ("copy", shard, number, history): _bytes(table, stop - start) for shard in roles.copies_on(node)
        for number, (table, n_histories) in enumerate(tables.items()) for history in range(n_histories)
        for start, stop in [table.shard(shard, n_shards)]}
    for shard in (*roles.copies_on(node), *(s for s in roles.shards_on(node) if roles.copy_node(s) is not None)):
        found["stage", shard] = stage_bytes(tables, history_chunks(tables, shard, n_shards))
    return found


def lay_out(held: Mapping[Key, int]) -> tuple[dict[Key, int], int]:
    """Lay blocks of memory out one after the other, aligned. ``held``: bytes by key. Returns offsets in bytes by key,
    and the total length."""
    offsets, end = {}, 0
    for key, n_bytes in held.items():
        offsets[key], end = end, end + aligned(n_bytes)
    return offsets, end


def joint_batches(batches: Sequence[Sequence[Index]]) -> frozenset[int]:
    """The batches that name the same rows on every worker, where no other batch touches these rows (see Keeper)."""
    first = batches[0]
    same = [b for b, index in enumerate(first) if all(own[b].same_rows(index) for own in batches)]
    return frozenset(b for b in same if not any(
        first[b].shares_rows(other) for own in batches for c, other in enumerate(own) if c != b))


def pooled_batches(roles: Roles, node: int, batches: Sequence[Sequence[Index]],
                   joint: frozenset[int] | None) -> frozenset[int]:
    """The batches that a node pulls once for all its workers (see Proxy): with slack 0 the joint ones, else those that
    name the same rows on all workers of the node."""
    if joint is not None:
        return joint
    own = [batches[worker] for worker in roles.workers_on(node)]
    return frozenset(b for b in range(len(own[0])) if all(other[b].same_rows(own[0][b]) for other in own))


def merged_batches(roles: Roles, node: int, batches: Sequence[Sequence[Index]],
                   joint: frozenset[int] | None) -> frozenset[int]:
    """The batches whose updates a node's workers push as one sum: with slack 0 the joint ones, so that all others are
    applied in the workers' order; else the pooled ones of tables whose rule merges (see Rule)."""
    if joint is not None:
        return joint
    first = batches[roles.label(node)]
    return frozenset(b for b in pooled_batches(roles, node, batches, joint) if first[b].table.merges)


def sources(roles: Roles, node: int, batches: Sequence[Sequence[Index]], joint: frozenset[int] | None) -> list[Source]:
    """What the workers of ``node`` push by itself."""
    workers = roles.workers_on(node)
    merged = merged_batches(roles, node, batches, joint) if workers else frozenset()
    return [(batch, worker) for worker in workers for batch in range(len(batches[worker]))
            if batch not in merged or worker == roles.label(node)]


def _received(roles: Roles, node: int, batches: Sequence[Sequence[Index]],
              joint: frozenset[int] | None) -> Iterator[tuple[Key, Index, int]]:
    for other in set(range(roles.topology.n_nodes)) - {node}:
        for batch, worker in sources(roles, other, batches, joint):
            index = batches[worker][batch]
            for shard in roles.shards_on(node):
                n_elems = int(index.clipped(*index.table.shard(shard, len(roles.shards)))[:, 2].sum())
                if n_elems:
                    yield ("received", shard, worker, batch), index, n_elems


def _bytes(table: Table, n_elems: int) -> int:
    return n_elems * np.dtype(table.dtype).itemsize
