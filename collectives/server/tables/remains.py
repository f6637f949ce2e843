"""Where the newest values of tables are when ranks are lost: pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from scaffe.collectives.server.tables.roles import Roles
from scaffe.collectives.server.tables.table import Table


class Remains(NamedTuple):
    """One shard's part of a table, after ranks have been lost.

    Attributes:
        shard: its number.
        start, stop: its interval, in elements of the table.
        giver: a rank that is left.
        is_whole: whether the giver's node has histories of the shard: the shard's own, or second copies; if not, the
            giver has a copy of the values as its node last pulled them, and no histories.
        is_copy: whether they are second copies, of a shard whose node is lost; the values are as the giver's node
            last pulled them.
    """

    shard: int
    start: int
    stop: int
    giver: int
    is_whole: bool
    is_copy: bool


def remains_of(roles: Roles, table: Table, left: Collection[int]) -> list[Remains]:
    """Who gives what of a table.

    A shard's memory is that of its node: it outlives the shard's rank, as long as any rank of the node is left. After
    that any rank of the node that keeps the second copy gives what there is.

    Args:
        roles: of the ranks that there were.
        table: which.
        left: the ranks that are left; not empty.

    Returns:
        One piece for each shard whose interval is not empty, in their order.
    """
    found = []
    for shard, owner in enumerate(roles.shards):
        start, stop = table.shard(shard, len(roles.shards))
        copy_node = roles.copy_node(shard)
        holders = [owner, *roles.topology.nodes[roles.node_of_shard(shard)]]
        keepers = [] if copy_node is None else roles.topology.nodes[copy_node]
        holder = next((rank for rank in [*holders, *keepers] if rank in left), None)
        if start < stop:
            found.append(Remains(shard, start, stop, min(left) if holder is None else holder, holder is not None,
                                 holder is not None and holder not in holders))
    return found
