"""Tables and indexes against numpy; layouts in which nothing overlaps."""

import tracemalloc

import numpy as np
import pytest

from scaffe.collectives import CommError
from scaffe.collectives.server.memory.layout import contents, joint_batches, lay_out, mail_slots
from scaffe.collectives.server.tables.roles import Roles, check_same, declared
from scaffe.collectives.server.tables.table import Index, Table
from scaffe.collectives.shared.kernels import gather_ranges
from scaffe.collectives.topology import Topology


def drawn(seed):
    """A table and some of its keys, often neighbours."""
    rng = np.random.default_rng(seed)
    n_rows = int(rng.integers(1, 40))
    keys = rng.permutation(n_rows)[: rng.integers(1, n_rows + 1)]
    return Table("t", n_rows, int(rng.integers(1, 6))), np.sort(keys) if rng.random() < 0.5 else keys


@pytest.mark.parametrize("seed", range(40))
def test_an_index_gathers_what_numpy_does_and_shards_share_it_out(seed):
    table, keys = drawn(seed)
    values = np.random.default_rng(seed).random((table.n_rows, table.row_elems)).astype(np.float32)
    index, buffer = Index(table, keys), np.zeros((len(keys), table.row_elems), np.float32)
    gather_ranges(values.ravel(), index.ranges, buffer.ravel())
    np.testing.assert_array_equal(buffer, values[keys])
    assert index.is_slice == bool((np.diff(keys) == 1).all())
    for n_shards in (1, 2, 5):
        again = np.zeros(index.n_elems, np.float32)
        for shard in range(n_shards):
            start, stop = table.shard(shard, n_shards)
            ranges = index.clipped(start, stop)
            assert (ranges[:, 0] >= start).all()
            assert (ranges[:, 0] + ranges[:, 2] <= stop).all()
            assert (shard in index.shards(n_shards)) == bool(len(ranges))
            part = np.zeros_like(again)
            gather_ranges(values.ravel(), ranges, part)
            again += part  # pieces do not overlap: sums are the pieces
        np.testing.assert_array_equal(again, buffer.ravel())


@pytest.mark.parametrize("seed", range(60))
def test_which_indexes_share_rows(seed):
    rng = np.random.default_rng(seed)
    table = Table("t", 12, 3)
    first, second = (rng.permutation(12)[: rng.integers(1, 5)] for _ in range(2))
    assert Index(table, first).shares_rows(Index(table, second)) == bool(set(first) & set(second))
    assert Index(table, first).same_rows(Index(table, second)) == (list(first) == list(second))
    assert not Index(table, first).shares_rows(Index(Table("u", 12, 3), first))


@pytest.mark.parametrize("keys", [range(3, 9), range(12), range(11, 12), range(9, 2, -1), range(0, 12, 5), slice(None),
                                  slice(4, -2), slice(None, None, -3)])
def test_a_range_or_a_slice_is_the_index_of_its_keys(keys):
    listed = list(range(12))[keys] if isinstance(keys, slice) else list(keys)
    found, right = (Index(Table("t", 12, 3), given) for given in (keys, listed))
    np.testing.assert_array_equal(found.ranges, right.ranges)
    assert found.ranges.dtype == right.ranges.dtype
    assert (found.n_rows, found.is_slice) == (len(listed), right.is_slice)


def test_a_range_of_neighbours_takes_no_memory_however_long():
    tracemalloc.start()
    try:
        indexes = [Index(Table("t", 60_000_000, 1), keys) for keys in (range(60_000_000), slice(7, None))]
        assert [index.shards(4) for index in indexes] == [(0, 1, 2, 3)] * 2
        assert not indexes[0].same_rows(indexes[1])
        assert indexes[0].shares_rows(indexes[1])
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("keys", "words"), [
    (range(0), "expected a sequence"), (range(3, 6), "has no row 5; its keys are 0 to 4"),
    (range(-1, 2), "has no row -1"),
    (slice(5, None), "expected a sequence"), ([2**63], "has no row 9223372036854775808"),
    ([], "expected a sequence"), ([[1]], "expected a sequence"), ([1.5], "expected a sequence"), (3, "expected"),
    ([0, 7], "has no row 7; its keys are 0 to 4"), ([-1], "has no row -1"), ([2, 1, 2], "key 2 is given twice")])
def test_keys_that_cannot_be(keys, words):
    with pytest.raises(CommError, match=f"table 't'.*{words}"):
        Index(Table("t", 5, 2), keys)


@pytest.mark.parametrize(("arguments", "words"), [
    ((0, 1), "n_rows must be"), ((1, -3), "row_elems must be"), ((1.5, 1), "n_rows must be"),
    ((1, 1, "int8"), "dtype must be one of")])
def test_tables_that_cannot_be(arguments, words):
    with pytest.raises(CommError, match=f"table 't': {words}"):
        Table("t", *arguments)


def test_nothing_overlaps_in_a_layout():
    held = {("a",): 63, ("b", 1): 64, ("b", 2): 0, ("c",): 1000, ("d",): 1}
    offsets, n_bytes = lay_out(held)
    assert offsets == {("a",): 0, ("b", 1): 64, ("b", 2): 128, ("c",): 128, ("d",): 1152}
    assert n_bytes == 1216


def test_what_a_node_holds():
    """Three workers on two nodes, all with shards; batch 0 is whole, batch 1 the worker's own rows."""
    tables, roles = [Table("a", 7, 3), Table("b", 6, 1, "float64")], Roles.of(Topology([0, 0, 1]), 0)
    batches = [[Index(tables[0], range(7)), Index(tables[1], [worker, 5 - worker])] for worker in range(3)]
    for joint in (joint_batches(batches), None):
        first, second = (contents(roles, node, dict.fromkeys(tables, 0), batches, joint) for node in (0, 1))
        mail = 64 * (1 + mail_slots(roles, batches))
        common = {("clocks",): 24, ("values", 0): 84, ("values", 1): 48}
        assert first == common | {
            ("shard", 0): mail, ("shard", 1): mail, ("worker", 0): mail, ("worker", 1): mail, ("gateway", 0): mail,
            ("gateway", 1): mail, ("update", 0, 0): 84, ("update", 1, 0): 84, ("update", 0, 1): 16,
            ("update", 1, 1): 16, ("received", 0, 2, 0): 28, ("received", 1, 2, 0): 28, ("received", 1, 2, 1): 16}
        assert second == common | {
            ("shard", 2): mail, ("worker", 2): mail, ("gateway", 2): mail, ("update", 2, 0): 84, ("update", 2, 1): 16,
            ("received", 2, 0, 0): 28, ("received", 2, 0, 1): 8, ("received", 2, 1, 1): 8}


def test_joint_batches_are_the_same_for_all_and_nobody_elses():
    a, b = Table("a", 9, 2), Table("b", 9, 2)
    same, alike, own, other = Index(a, [0, 1]), Index(b, [0, 1]), Index(a, [3]), Index(a, [4])
    assert joint_batches([[same, alike, own], [same, alike, other]]) == {0, 1}
    assert joint_batches([[same, Index(a, [1, 2])]]) == frozenset()
    assert joint_batches([[same, own], [Index(a, [1, 0]), own]]) == {1}


@pytest.mark.parametrize(("change", "said"), [
    ({"slack": 1}, "rank 0 has slack 0, rank 2 has slack 1"),
    ({"tables": [Table("a", 9, 2), Table("b", 9, 3)]}, "rank 0 has table 'b' of 9 x 2 float32, rank 2 has table 'b'"),
    ({"tables": [Table("a", 9, 2)]}, "rank 0 has table 'b' of 9 x 2 float32, rank 2 has no more tables"),
    ({"roles": Roles.of(Topology.flat(4), 1)}, r"shards on 0 to 3, rank 2 has workers 0 to 2, shards on \[3\]"),
])
def test_the_first_thing_that_ranks_declare_otherwise_is_named(change, said):
    given = {"slack": 0, "roles": Roles.of(Topology.flat(4), 0), "tables": [Table("a", 9, 2), Table("b", 9, 2)]}
    same = declared(**given)
    check_same([same, same])
    with pytest.raises(CommError, match=said):
        check_same([same, same, declared(**given | change), same])


def test_roles():
    four = Topology.flat(4)
    assert Roles.of(four, 0) == Roles(four, (0, 1, 2, 3), (0, 1, 2, 3))
    assert Roles.of(four, 1) == Roles(four, (0, 1, 2), (3,))
    for n_servers in (-1, 4, 5):
        with pytest.raises(CommError, match="servers must be from 0 to 3 on 4 ranks"):
            Roles.of(four, n_servers)
    with pytest.raises(CommError, match="placement must be one of last, spread, got 'best'"):
        Roles.of(four, 1, "best")


@pytest.mark.parametrize(("nodes", "n_servers", "servers"), [
    ([0, 0, 0, 1, 1, 1], 2, (2, 5)), ([0, 0, 0, 1, 1, 1], 1, (5,)), ([0, 0, 0, 1, 1, 1], 3, (2, 4, 5)),
    ([0, 1, 0, 1, 0, 1], 2, (4, 5)), ([0, 1, 1, 1], 3, (0, 2, 3)), ([0, 0, 0], 2, (1, 2))])
def test_servers_spread_over_nodes(nodes, n_servers, servers):
    roles = Roles.of(Topology(nodes), n_servers, "spread")
    assert roles.shards == servers
    assert roles.workers == tuple(rank for rank in range(len(nodes)) if rank not in servers)


def test_who_counts_whom_and_who_carries_what():
    """Nodes are ordered by their first workers; a shard counts its own node's workers and the other nodes' labels."""
    roles = Roles.of(Topology([0, 1, 0, 2, 1]), 1)  # workers 0 to 3, rank 4 on node 1 is a server
    assert [roles.workers_on(node) for node in range(3)] == [(0, 2), (1,), (3,)]
    assert [roles.members(node) for node in range(3)] == [(0, 2, 1, 3), (0, 1, 3), (0, 1, 3)]
    everyone = Roles.of(Topology([0, 0, 1, 1, 1]), 0)
    assert [everyone.carrier(0, shard) for shard in range(5)] == [0, 1, 0, 1, 0]
    assert [everyone.carrier(1, shard) for shard in range(5)] == [2, 3, 2, 3, 4]
    assert [everyone.proxies_of(rank) for rank in range(5)] == [(2, 4), (3,), (0,), (1,), ()]
