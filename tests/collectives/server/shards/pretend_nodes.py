"""Shards and their second copies without threads or MPI: ranks and nodes die at any moment, recoveries included.

Every update adds one to all histories of a table on a shard; history k begins with k million, so that places that are
mixed up show. Pieces leave, land and are confirmed whenever the schedule says so.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from scaffe.collectives.server.memory.common import InMemory
from scaffe.collectives.server.shards.copies import CopySchedule, Stage, updates_a_round
from scaffe.collectives.server.tables.roles import Roles, recovery_sources
from scaffe.collectives.server.tables.table import Table, history_chunks
from scaffe.collectives.topology import Topology

MOST_BYTES = 40  # of a piece: some elements


class Shard:
    """One shard, its copying, and its copy in another node's memory."""

    def __init__(self, number: int, world: World, histories: dict[Table, list[np.ndarray]]) -> None:
        roles, self.world, self.histories = world.roles, world, histories
        self.rank, self.node = roles.shards[number], roles.node_of_shard(number)
        self.copy_node, self.copier = roles.copy_node(number), roles.copier(number)
        chunks = history_chunks(world.tables, number, len(roles.shards), MOST_BYTES)
        self.chunks = [] if self.copy_node is None else chunks
        self.a_round = len(roles.workers) if world.slack else 1
        self.copying = CopySchedule(self.chunks, len(world.tables), updates_a_round(len(roles.workers), world.slack))
        self.copy = {table: [history.copy() for history in own] for table, own in histories.items()}  # as restored
        memories = np.zeros((2, MOST_BYTES + 64), np.uint8)
        self.here, self.there = (Stage(self.chunks, list(world.tables), held, memory, InMemory())
                                 for held, memory in zip((histories, self.copy), memories, strict=True))
        self.memories, self.coming, self.confirmed = memories, None, False

    def moves(self) -> Iterator[tuple[str, object]]:
        if self.rank in self.world.alive:
            yield from (("update", number) for number in range(len(self.world.tables))
                        if not self.copying.must_wait(number))
            if self.confirmed:
                yield "kept", None
        if self.coming is not None and self.copier in self.world.alive:
            yield "landed", None

    def update(self, number: int) -> None:
        for history in self.histories[list(self.world.tables)[number]]:
            history += 1
        self.copying.made(number)
        self.send()

    def send(self) -> None:
        number = self.copying.begin()
        if number is not None:
            if self.coming is not None or self.confirmed:
                raise RuntimeError("two pieces are under way")
            self.here.fill(number)
            self.coming = number

    def landed(self, _: object) -> None:
        number, self.coming = self.coming, None
        self.memories[1] = self.memories[0]  # the stage of the sender is its own until the piece is confirmed
        self.there.place(number)
        self.confirmed = True

    def kept(self, _: object) -> None:
        self.confirmed = False
        self.copying.kept()
        self.send()


class World:
    """The ranks that are left, from one loss to the next."""

    def __init__(self, nodes: list[int], n_servers: int, slack: float, tables: dict[Table, int],
                 given: dict[Table, list[np.ndarray]], luck: random.Random) -> None:
        self.roles = Roles.of(Topology(nodes), n_servers, keeps_copies=True)
        self.slack, self.tables, self.luck = slack, tables, luck
        self.alive = set(range(len(nodes)))
        self.shards = [Shard(number, self, {table: [history[slice(*table.shard(number, len(self.roles.shards)))].copy()
                                                    for history in own] for table, own in given.items()})
                       for number in range(len(self.roles.shards))]

    def go_on(self, n_moves: int) -> None:
        """So many moves, drawn; messages are fast or slow."""
        polling = self.luck.choice([0.02, 0.2, 1])
        for _ in range(n_moves):
            moves = [(shard, *move) for shard in self.shards for move in shard.moves()]
            if not moves:
                return
            shard, kind, what = self.luck.choice(moves)
            if kind == "update" or self.luck.random() < polling:
                getattr(shard, kind)(what)

    def drain(self) -> None:
        """All that is under way arrives."""
        while moves := [(shard, *move) for shard in self.shards for move in shard.moves() if move[0] != "update"]:
            shard, kind, what = self.luck.choice(moves)
            getattr(shard, kind)(what)

    def lose(self) -> None:
        """A rank dies, or a whole node."""
        victim = self.luck.choice(sorted(self.alive))
        node = self.roles.topology.node_of_rank[victim]
        whole = self.luck.random() < 0.6
        gone = {rank for rank in self.alive if rank == victim or (whole and rank in self.roles.topology.nodes[node])}
        if gone < self.alive:
            self.alive -= gone

    def recovery_sources(self) -> Iterator[tuple[Shard, Table, bool, bool, list[np.ndarray]]]:
        """What those that are left give, shard by shard; more may die between two of them."""
        for table in self.tables:
            for shard, _, _, giver, is_whole, is_copy in recovery_sources(self.roles, table, self.alive):
                held = self.shards[shard]
                memory = held.copy if is_copy else held.histories
                at = self.roles.topology.node_of_rank[giver]
                if is_whole and at != (held.copy_node if is_copy else held.node):
                    raise RuntimeError(f"rank {giver} gives what another node has")
                yield held, table, is_whole, is_copy, [history.copy() for history in memory[table]]
