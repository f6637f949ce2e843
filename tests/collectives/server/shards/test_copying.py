"""Second copies of histories under random schedules with deaths: each is of one moment, not too old, and elsewhere."""

import math
import random
from collections import Counter

import numpy as np
import pytest

from scaffe.collectives.server.shards.copies import MOST_ROUNDS, ROUNDS_APART, CopySchedule
from scaffe.collectives.server.tables.table import HistoryChunk, Table, history_chunks
from tests.collectives.server.shards.pretend_nodes import World

MILLION = 1_000_000


def draw(seed):
    """A world with a few ranks and tables."""
    luck = random.Random(seed)
    nodes = [node for node in range(luck.randint(1, 4)) for _ in range(luck.randint(1, 3))]
    tables = {Table(f"t{n}", 1, luck.randint(1, 40), luck.choice(["float32", "float64"])): luck.randint(0, 2)
              for n in range(luck.randint(1, 3))}
    n_servers = luck.choice([0, luck.randrange(len(nodes))])
    return World(nodes, n_servers, luck.choice([0, 2, math.inf]), tables, first_histories(tables), luck)


def first_histories(tables):
    """History k of each table is k million."""
    return {table: [np.full(table.n_elems, k * MILLION, table.dtype) for k in range(n)] for table, n in tables.items()}


def check(held, table, is_whole, is_copy, given):
    """What is given of a shard, beside what the shard itself had when it died."""
    behind = [own - other for own, other in zip(held.histories[table], given, strict=True)]
    for lag in behind:
        assert (lag == behind[0]).all()  # all histories of an element are of the same moment
        assert lag.min() >= 0
        assert lag.max() <= (MOST_ROUNDS * held.a_round if is_copy else 0)
    for chunk in held.chunks if is_copy and behind else ():
        if list(held.world.tables)[chunk.table] == table:
            assert len(set(behind[0][chunk.start:chunk.stop])) == 1
    nodes = held.world.roles.topology.nodes
    assert is_copy == (is_whole and not set(nodes[held.node]) & held.world.alive)
    assert is_whole or held.copy_node is None or not set(nodes[held.copy_node]) & held.world.alive


def next_world(world):
    """Those that are left go on with what they have been given; also returns what that was. None where none works."""
    roles, left = world.roles, sorted(world.alive)
    n_servers = len(set(left) - set(roles.workers)) if len(roles.workers) < roles.topology.n_ranks else 0
    if n_servers == len(left):
        return None
    while True:  # whoever dies while all give: then all begin anew
        found, before = list(world.recovery_sources()), len(world.alive)
        if world.luck.random() < 0.3:
            world.lose()
        if len(world.alive) == before:
            break
        return next_world(world)
    given = first_histories(world.tables)
    for held, table, is_whole, is_copy, histories in found:
        if is_whole:
            check(held, table, is_whole, is_copy, histories)
            shard = world.shards.index(held)
            for whole, history in zip(given[table], histories, strict=True):
                whole[slice(*table.shard(shard, len(roles.shards)))] = history
    labels = [roles.topology.node_of_rank[rank] for rank in left]
    nodes = [sorted(set(labels)).index(label) for label in labels]
    how = Counter((is_whole, is_copy) for _, _, is_whole, is_copy, _ in found)
    return World(nodes, n_servers, world.slack, world.tables, given, world.luck), how


@pytest.mark.parametrize("first", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (100, 200, 300))])
def test_a_copy_is_of_one_moment_and_never_too_old_whoever_dies_and_whenever(first):
    found = Counter()
    for seed in range(first, first + 100):
        world = draw(seed)
        for _ in range(4):
            world.go_on(world.luck.randint(0, 400))
            world.lose()
            world.go_on(world.luck.randint(0, 60))  # until all have heard of it
            following = next_world(world)
            if following is None:
                break
            world, how = following
            found += how
    assert found[True, True] > 20
    assert found[False, False] > 2
    assert found[True, False] > 200


def test_what_is_idle_catches_up_to_less_than_the_rounds_between_two_copies():
    n_seen = 0
    for seed in range(60):
        world = draw(seed)
        world.go_on(300)
        world.drain()
        for shard in world.shards if world.roles.topology.n_nodes > 1 else ():
            for table, own in shard.histories.items():
                for history, copy in zip(own, shard.copy[table], strict=True):
                    assert (history - copy).max(initial=0) < ROUNDS_APART * shard.a_round or shard.copy_node is None
                    n_seen += 1
    assert n_seen > 100


def test_a_shard_whose_copy_does_not_come_on_stops_at_the_bound():
    copying = CopySchedule([HistoryChunk(0, 0, 5), HistoryChunk(0, 5, 7), HistoryChunk(2, 0, 1)], 3, a_round=1)
    for n_made in range(MOST_ROUNDS):
        assert not copying.must_wait(0), n_made
        copying.made(0)
        assert (copying.begin() is not None) == (n_made + 1 == ROUNDS_APART)
    assert [copying.must_wait(table) for table in range(3)] == [True, False, False]
    copying.kept()
    assert copying.must_wait(0)  # the second piece has nothing yet
    assert copying.begin() == 1
    copying.kept()
    assert not copying.must_wait(0)  # the first one has ROUNDS_APART
    with pytest.raises(RuntimeError, match="was not under way"):
        copying.kept()


@pytest.mark.parametrize("most_bytes", [1, 24, 100])
def test_pieces_cover_every_element_with_histories_once(most_bytes):
    tables = {Table("a", 3, 11): 2, Table("b", 1, 4): 0, Table("c", 5, 1, "float64"): 1}
    for shard in range(3):
        covered = {0: np.zeros(33, int), 1: np.zeros(4, int), 2: np.zeros(5, int)}
        for table, start, stop in history_chunks(tables, shard, 3, most_bytes):
            covered[table][start:stop] += 1
            assert (stop - start) * 8 <= max(most_bytes, 8)  # two float32, or one float64
        for (table, n_histories), found in zip(tables.items(), covered.values(), strict=True):
            start, stop = table.shard(shard, 3)
            assert found.tolist() == [int(n_histories > 0 and at < stop - start) for at in range(table.n_elems)]
