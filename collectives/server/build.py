"""Starts one rank of a parameter server: its memory, its shard, and its gateway to other nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.runtime.point_to_point import PointToPoint
from scaffe.collectives.server.failure_detector import FailureDetector
from scaffe.collectives.server.memory.layout import joint_batches, merged_batches, pooled_batches
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


class Running:
    """A rank of a started server: its node's memory, and the threads of its shard and of its gateway to other nodes.

    Attributes:
        store: the node's memory.
        others: a communicator of all ranks for the messages between nodes; None on a single node.
        parts: what the rank's shard holds of every table; none without a shard.
        service, gateway: the threads; None where there is none.
    """

    def __init__(self, ranks: Communicator, roles: Roles, slack: float, rules: Mapping[Table, Rule],
                 batches: Sequence[Sequence[Index]], folder: str, fail: Callable[[BaseException], None]) -> None:
        """Allocates the memory; every rank calls it. ``batches``: for each worker of all nodes, the indexes of its
        batches."""
        self._rank, self._roles, self._slack, self._batches, self._fail = ranks.rank, roles, slack, batches, fail
        self._node, self._rules = roles.topology.node_of_rank[ranks.rank], rules
        self._joint = None if slack else joint_batches(batches)
        n_histories = {table: rule.n_histories for table, rule in rules.items()}
        self.store = Store(ranks, roles, n_histories, batches, self._joint, folder)
        self.others: Communicator | None = None
        self.gateway: Gateway | None = None
        self.service: Service | None = None
        self.parts: dict[Table, Part] = {}

    def start(self, ranks: Communicator, values: Mapping[str, np.ndarray], failures: FailureDetector) -> None:
        """Fills the tables and starts the threads; every rank calls it. ``values``: see ParameterServer.start."""
        store, roles = self.store, self._roles
        fault, given = ranks.bcast_object((store.fill(values), list(values)) if ranks.rank == 0 else None)
        if fault:
            raise CommError(fault, everywhere=True)
        self.others = reach_others(ranks, store, given)
        failures.start(store.clocks)  # everybody's memory is ready from here on
        if self.others is not None:
            self.gateway = self._gateway(self.others.messages)
        if ranks.rank in roles.shards:
            number, n_shards = roles.shards.index(ranks.rank), len(roles.shards)
            self.parts = {table: Part(store.values[table], *table.shard(number, n_shards), rule,
                                      store.histories[number, table], store.tier)
                          for table, rule in self._rules.items()}
            self.service = self._service(number)

    def _gateway(self, messages: PointToPoint) -> Gateway:
        roles, workers = self._roles, self._roles.workers_on(self._node)
        pooled, merged = ([of(roles, self._node, self._batches, self._joint) for of in (pooled_batches, merged_batches)]
                          if workers else ((), ()))
        proxies = {shard: Proxy(workers, self._slack, pooled, merged) for shard in roles.proxies_of(self._rank)}
        placement = RowPlacement(self.store, list(self.store.values), self._batches, len(roles.shards))
        stages = {shard: self._stage(shard) for shard in range(len(roles.shards))
                  if roles.copy_node(shard) is not None and self._rank in (roles.shards[shard], roles.copier(shard))}
        return Gateway(self._rank, roles, self.store, partial(Links, messages), proxies, placement, stages, self._fail)

    def _service(self, number: int) -> Service:
        store = self.store
        joint = self._joint or frozenset()
        steps = all_steps(number, self.parts, self._batches, store, joint)
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
        return stage_of(self.store, shard, len(self._roles.shards))

    def mailboxes(self) -> dict[int, Mailbox]:
        """By number, the mailboxes of the shards, or of who stands for them on this node."""
        mail, gateways = self.store.shard_mail, self.store.gateway_mail
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
