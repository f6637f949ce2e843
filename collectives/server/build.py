"""Builds the threads of one rank of a parameter server: its shard, and its gateway to other nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.runtime.point_to_point import PointToPoint
from scaffe.collectives.server.memory.layout import merged_batches, pooled_batches
from scaffe.collectives.server.memory.store import Store
from scaffe.collectives.server.nodes.gateway import Gateway
from scaffe.collectives.server.nodes.links import Links
from scaffe.collectives.server.nodes.proxy import Proxy
from scaffe.collectives.server.nodes.transfers import RowPlacement
from scaffe.collectives.server.protocol.keeper import Keeper
from scaffe.collectives.server.protocol.mailbox import Mailbox
from scaffe.collectives.server.shards.copies import CopySchedule, Stage, stage_of, updates_a_round
from scaffe.collectives.server.shards.service import Service
from scaffe.collectives.server.shards.shard import Part, Rule, all_steps
from scaffe.collectives.server.tables.roles import Roles
from scaffe.collectives.server.tables.table import Index, Table


class Build:
    """Builds the parts of one rank. ``joint``: the joint batches with slack 0; None with more."""

    def __init__(self, rank: int, roles: Roles, slack: float, batches: Sequence[Sequence[Index]],
                 joint: frozenset[int] | None, store: Store, fail: Callable[[BaseException], None]) -> None:
        self._rank, self._roles, self._slack, self._batches = rank, roles, slack, batches
        self._joint, self._store, self._fail = joint, store, fail
        self._node = roles.topology.node_of_rank[rank]

    def gateway(self, messages: PointToPoint) -> Gateway:
        """Start the rank's gateway; it alone uses ``messages``."""
        roles, workers = self._roles, self._roles.workers_on(self._node)
        pooled, merged = ([of(roles, self._node, self._batches, self._joint) for of in (pooled_batches, merged_batches)]
                          if workers else ((), ()))
        proxies = {shard: Proxy(workers, self._slack, pooled, merged) for shard in roles.proxies_of(self._rank)}
        placement = RowPlacement(self._store, list(self._store.values), self._batches, len(roles.shards))
        stages = {shard: self._stage(shard) for shard in range(len(roles.shards))
                  if roles.copy_node(shard) is not None and self._rank in (roles.shards[shard], roles.copier(shard))}
        return Gateway(self._rank, roles, self._store, partial(Links, messages), proxies, placement, stages, self._fail)

    def parts(self, rules: Mapping[Table, Rule]) -> dict[Table, Part]:
        """What the rank's shard holds of every table."""
        number, n_shards = self._roles.shards.index(self._rank), len(self._roles.shards)
        store = self._store
        return {table: Part(store.values[table], *table.shard(number, n_shards), rule, store.histories[number, table],
                            store.tier)
                for table, rule in rules.items()}

    def service(self, parts: Mapping[Table, Part]) -> Service:
        number, store = self._roles.shards.index(self._rank), self._store
        joint = self._joint or frozenset()
        steps = all_steps(number, parts, self._batches, store, joint)
        keeper = Keeper(self._roles.members(self._node), self._slack, joint)
        tables = list(store.values)
        stage = None if self._roles.copy_node(number) is None else self._stage(number)
        schedule = CopySchedule(stage.chunks if stage else (), len(tables),
                                updates_a_round(len(self._roles.workers), self._slack))
        service = Service(number, keeper, steps, store, store.gateway_mail.get(self._rank), (schedule, stage),
                          [tables.index(index.table) for index in self._batches[0]], self._fail)
        if self._rank not in self._roles.workers:  # a worker looks by itself
            service.look = store.tier.look
        return service

    def _stage(self, shard: int) -> Stage:
        return stage_of(self._store, shard, len(self._roles.shards))

    def mailboxes(self) -> dict[int, Mailbox]:
        """By number, the mailboxes of the shards, or of who stands for them on this node."""
        mail, gateways = self._store.shard_mail, self._store.gateway_mail
        return {shard: mail[shard] if shard in mail else gateways[self._roles.carrier(self._node, shard)]
                for shard in range(len(self._roles.shards))}


def reach_others(ranks: Communicator, store: Store, given: Collection[str]) -> Communicator | None:
    """Broadcasts initial values to the other nodes. Collective. ``store``: this node's memory; on the first rank's node
    the values are there. Returns a communicator of all ranks for the messages between nodes; None on a single node."""
    if ranks.topology.n_nodes == 1:
        return None
    leaders = ranks.split(0 if ranks.node_rank == 0 else None)
    for table, values in store.values.items():
        if leaders is not None and table.name in given:
            for chunk in store.tier.chunks(values):
                leaders.bcast(values[chunk])
    if leaders is not None:
        leaders.free()
    return ranks.split(0)
