"""Which ranks are workers and which hold shards, on which nodes they sit, and who carries what between nodes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from scaffe.collectives.errors import CommError
from scaffe.collectives.server.tables.table import Index, Table
from scaffe.collectives.topology import Topology

PLACEMENTS = ("last", "spread")


@dataclass(frozen=True)
class Roles:
    """Who does what. The number of a worker or shard is its index in the lists below. ``workers``, ``shards``: ranks,
    ascending; ``keeps_copies``: whether shards' histories have second copies on other nodes."""

    topology: Topology
    workers: tuple[int, ...]
    shards: tuple[int, ...]
    keeps_copies: bool = False

    @classmethod
    def of(cls, topology: Topology, n_servers: int, placement: str = "last",
           keeps_copies: bool = False) -> Roles:
        """Assign the roles.

        Args:
            n_servers: how many ranks hold shards only, the others being workers only; with 0 every rank is a worker
                and holds a shard.
            placement: "last" makes the last ranks servers; "spread" the last ranks of every node in turn, as many a
                node as there is place for.

        Raises:
            CommError: no rank would be left as a worker, or no such placement.
        """
        n_ranks = topology.n_ranks
        if not 0 <= n_servers < n_ranks:
            raise CommError(f"servers must be from 0 to {n_ranks - 1} on {n_ranks} ranks, so that one can work; "
                            f"got {n_servers}", everywhere=True)
        if placement not in PLACEMENTS:
            raise CommError(f"placement must be one of {', '.join(PLACEMENTS)}, got {placement!r}", everywhere=True)
        ranks = tuple(range(n_ranks))
        order = list(reversed(ranks)) if placement == "last" else list(_in_turn(topology))
        servers = set(order[:n_servers])
        workers = tuple(rank for rank in ranks if rank not in servers)
        return cls(topology, workers, tuple(sorted(servers)) if servers else ranks, keeps_copies)

    def node_of_worker(self, worker: int) -> int:
        return self.topology.node_of_rank[self.workers[worker]]

    def node_of_shard(self, shard: int) -> int:
        return self.topology.node_of_rank[self.shards[shard]]

    def workers_on(self, node: int) -> tuple[int, ...]:
        return tuple(w for w in range(len(self.workers)) if self.node_of_worker(w) == node)

    def shards_on(self, node: int) -> tuple[int, ...]:
        return tuple(s for s in range(len(self.shards)) if self.node_of_shard(s) == node)

    def copy_node(self, shard: int) -> int | None:
        """The node that keeps the second copy of a shard's histories; None where none does.

        It is the next one with workers, which pull the shard's values: so it has both. Without another node nobody
        outlives the loss of the shard's; without workers on another one nobody goes on after it.
        """
        n_nodes, own = self.topology.n_nodes, self.node_of_shard(shard)
        others = [(own + step) % n_nodes for step in range(1, n_nodes)] if self.keeps_copies else []
        return next((node for node in others if self.workers_on(node)), None)

    def copier(self, shard: int) -> int | None:
        """The rank that receives what goes into a shard's second copy."""
        node = self.copy_node(shard)
        return None if node is None else self.carrier(node, shard)

    def copies_on(self, node: int) -> tuple[int, ...]:
        return tuple(s for s in range(len(self.shards)) if self.copy_node(s) == node)

    def slowest(self, node: int, clocks: Sequence[int]) -> str:
        """The slowest worker as far as it is known on a node: of another one's workers only their shards' nodes hear.
        """
        own = self.workers_on(node)
        slowest = min(range(len(self.workers)) if self.shards_on(node) else own, key=clocks.__getitem__)
        meant = (slowest,) if slowest in own else self.workers_on(self.node_of_worker(slowest))
        return f"rank {' or '.join(str(self.workers[w]) for w in meant)}, in iteration {clocks[slowest]}"

    def label(self, node: int) -> int:
        """The number under which other nodes know a node's workers together: its first worker's."""
        return self.workers_on(node)[0]

    def members(self, node: int) -> tuple[int, ...]:
        """Whom a shard on ``node`` counts as its workers, in the order in which their updates are summed.

        Nodes follow one another by their labels; the workers of ``node`` itself stand for themselves, those of any
        other node are one member, called by the node's label.
        """
        labels = sorted(self.label(n) for n in range(self.topology.n_nodes) if self.workers_on(n))
        nodes = [self.node_of_worker(label) for label in labels]
        return tuple(m for n in nodes for m in (self.workers_on(n) if n == node else (self.label(n),)))

    def carrier(self, node: int, shard: int) -> int:
        """The rank whose thread speaks for ``shard`` on ``node``: its own on its own node, elsewhere all in turn."""
        if self.node_of_shard(shard) == node:
            return self.shards[shard]
        ranks = self.topology.nodes[node]
        remote = [s for s in range(len(self.shards)) if self.node_of_shard(s) != node]
        return ranks[remote.index(shard) % len(ranks)]

    def proxies_of(self, rank: int) -> tuple[int, ...]:
        """Numbers of the shards of other nodes for which ``rank`` speaks on its node."""
        node = self.topology.node_of_rank[rank]
        return tuple(s for s in range(len(self.shards))
                     if self.node_of_shard(s) != node and self.carrier(node, s) == rank)


def _in_turn(topology: Topology) -> Iterator[int]:
    """All ranks: the last ones of all nodes, last node first, then the ones before these, and so on."""
    for turn in range(max(len(ranks) for ranks in topology.nodes)):
        for ranks in reversed(topology.nodes):
            if turn < len(ranks):
                yield ranks[len(ranks) - 1 - turn]


def declared(slack: float, roles: Roles, tables: Sequence[Table], folder: str = "") -> list[str]:
    """What a rank has declared, line by line, so that ranks can be compared and errors name the first difference."""
    copies = ", with second copies" * roles.keeps_copies
    places = f", tables in folder {folder}" * bool(folder)
    return [f"slack {slack:g}{copies}{places}", f"workers {_ranks(roles.workers)}, shards on {_ranks(roles.shards)}",
            *(f"table {table.name!r} of {table.n_rows} x {table.row_elems} {table.dtype}"
              f"{'' if table.merges else ', whose rule does not merge'}" for table in tables)]


def check_same(everyone: Sequence[Sequence[str]]) -> None:
    """Raise CommError, on every rank, unless all have declared the same."""
    for rank, own in enumerate(everyone):
        for first, other in zip_longest(everyone[0], own, fillvalue="no more tables"):
            if first != other:
                raise CommError(f"ranks declare different parameter servers: rank 0 has {first}, rank {rank} has "
                                f"{other}", everywhere=True)


def check_batches(everyone: Sequence[Sequence[Index]]) -> None:
    """Raise CommError, on every rank, unless all workers have as many batches, each over the same table."""
    for worker, own in enumerate(everyone):
        if [index.table for index in own] != [index.table for index in everyone[0]]:
            raise CommError(f"workers' batches differ: worker 0's are of tables {_named(everyone[0])}, "
                            f"worker {worker}'s of {_named(own)}", everywhere=True)


def _named(batches: Sequence[Index]) -> str:
    return ", ".join(index.table.name for index in batches) or "none"


def _ranks(ranks: Sequence[int]) -> str:
    in_a_row = len(ranks) > 1 and ranks[-1] - ranks[0] == len(ranks) - 1
    return f"{ranks[0]} to {ranks[-1]}" if in_a_row else str(list(ranks))


class RecoverySource(NamedTuple):
    """Which rank gives one shard's part of a table after ranks have been lost.

    Attributes:
        start, stop: its interval, in elements of the table.
        is_whole: whether the giver's node has histories of the shard: the shard's own, or second copies. If not, the
            giver has a copy of the values as its node last pulled them, and no histories.
        is_copy: whether these are second copies, of a shard whose node is lost; the values are then as the giver's
            node last pulled them.
    """

    shard: int
    start: int
    stop: int
    giver: int
    is_whole: bool
    is_copy: bool


def recovery_sources(roles: Roles, table: Table, left: Collection[int]) -> list[RecoverySource]:
    """Finds, for each shard's part of a table, a rank that is left and has it.

    A shard's memory is its node's: it survives the shard's rank as long as any rank of the node is left. After that any
    rank of the node that keeps the second copy gives it.

    Args:
        roles: of all ranks, the lost ones among them.
        left: the ranks that are left; not empty.

    Returns:
        A source for each shard whose interval is not empty, in the shards' order.
    """
    found = []
    for shard, owner in enumerate(roles.shards):
        start, stop = table.shard(shard, len(roles.shards))
        copy_node = roles.copy_node(shard)
        holders = [owner, *roles.topology.nodes[roles.node_of_shard(shard)]]
        keepers = [] if copy_node is None else roles.topology.nodes[copy_node]
        holder = next((rank for rank in [*holders, *keepers] if rank in left), None)
        if start < stop:
            found.append(RecoverySource(shard, start, stop, min(left) if holder is None else holder, holder is not None,
                                 holder is not None and holder not in holders))
    return found
