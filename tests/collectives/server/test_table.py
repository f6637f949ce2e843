"""Tables and indexes against numpy; layouts in which nothing overlaps."""

import numpy as np
import pytest

from scaffe.collectives import CommError
from scaffe.collectives.server.layout import Roles, joint_batches, lay_out
from scaffe.collectives.server.runs import gather_runs
from scaffe.collectives.server.table import Index, Table


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
    gather_runs(values.ravel(), index.runs, buffer.ravel())
    np.testing.assert_array_equal(buffer, values[keys])
    assert index.is_slice == bool((np.diff(keys) == 1).all())
    for n_shards in (1, 2, 5):
        again = np.zeros(index.n_elems, np.float32)
        for shard in range(n_shards):
            start, stop = table.shard(shard, n_shards)
            runs = index.within(start, stop)
            assert (runs[:, 0] >= start).all()
            assert (runs[:, 0] + runs[:, 2] <= stop).all()
            assert (shard in index.shards(n_shards)) == bool(len(runs))
            part = np.zeros_like(again)
            gather_runs(values.ravel(), runs, part)
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


@pytest.mark.parametrize(("keys", "words"), [
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
    tables = [Table("a", 7, 3), Table("b", 5, 1, "float64")]
    batches = [[Index(tables[0], [0, 5]), Index(tables[1], range(worker + 1))] for worker in range(3)]
    layout = lay_out(tables, batches, 2)
    mailbox = 64 * (1 + layout.n_slots)
    spans = [(at, mailbox) for at in (*layout.shard_mail, *layout.worker_mail)] + [(layout.clocks, 3 * 8)]
    spans += [(layout.values[0], 21 * 4), (layout.values[1], 5 * 8)]
    spans += [(at, n) for w, own in enumerate(layout.updates) for at, n in zip(own, (6 * 4, (w + 1) * 8), strict=True)]
    spans.sort()
    assert all(at % 64 == 0 for at, _ in spans)
    assert all(at + n <= after for (at, n), (after, _) in zip(spans, spans[1:], strict=False))
    assert spans[-1][0] + spans[-1][1] <= layout.n_bytes


def test_joint_batches_are_the_same_for_all_and_nobody_elses():
    a, b = Table("a", 9, 2), Table("b", 9, 2)
    same, alike, own, other = Index(a, [0, 1]), Index(b, [0, 1]), Index(a, [3]), Index(a, [4])
    assert joint_batches([[same, alike, own], [same, alike, other]]) == {0, 1}
    assert joint_batches([[same, Index(a, [1, 2])]]) == frozenset()
    assert joint_batches([[same, own], [Index(a, [1, 0]), own]]) == {1}


def test_roles():
    assert Roles.of(4, 0) == Roles((0, 1, 2, 3), (0, 1, 2, 3))
    assert Roles.of(4, 1) == Roles((0, 1, 2), (3,))
    for n_servers in (-1, 4, 5):
        with pytest.raises(CommError, match="servers must be from 0 to 3 on 4 ranks"):
            Roles.of(4, n_servers)
