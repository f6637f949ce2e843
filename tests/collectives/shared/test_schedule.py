"""Tables of the shared-memory passes: every element once, from the right ranks to the right ranks."""

import numpy as np
import pytest

from scaffe.collectives.shared import schedule

ALL = "all"
SOURCES = {"reduce": ALL, "allreduce": ALL, "reduce_scatter": ALL, "bcast": "root", "allgather": "owner"}
TARGETS = {"reduce": "root", "allreduce": ALL, "reduce_scatter": "owner", "bcast": "others", "allgather": "others"}


def members(rule, n_ranks, root, owner):
    one = root if rule == "root" else owner
    return {ALL: set(range(n_ranks)), "root": {root}, "owner": {owner}}.get(rule, set(range(n_ranks)) - {one})


@pytest.mark.parametrize("collective", list(SOURCES))
@pytest.mark.parametrize(("n_ranks", "n_elems"), [(1, 5), (2, 0), (3, 1), (4, 100_003), (5, 7), (8, 300_000)])
@pytest.mark.parametrize("cut", [1.0, 0.37])
def test_every_element_once(collective, n_ranks, n_elems, cut):
    root, edge = n_ranks - 1, int(n_elems * cut)
    seen = np.zeros(n_elems, int)
    for start, end in ((0, edge), (edge, n_elems)):
        tables = schedule.tables(collective, n_ranks, n_elems, root, 4, start, end)
        for first, last, segment in tables.chunks:
            assert start <= first < last <= end
            seen[first:last] += 1
            owner = next(rank for rank in range(n_ranks) if first < (rank + 1) * n_elems // n_ranks)
            rule_owner = root if collective == "bcast" else owner
            sources = set(tables.sources[segment, 1:1 + tables.sources[segment, 0]])
            targets = set(tables.targets[segment, 1:1 + tables.targets[segment, 0]])
            assert sources == members(SOURCES[collective], n_ranks, root, owner)
            assert targets == members(TARGETS[collective], n_ranks, root, rule_owner)
    assert (seen == 1).all()


def test_reads_and_writes_tell_what_passes_through_the_staging_memory():
    tables = schedule.tables("allgather", 4, 100, 0, 4, 20, 60)
    assert tables.reads == ((( 20, 25),), ((25, 50),), ((50, 60),), ())
    assert tables.writes[3] == ((20, 25), (25, 50), (50, 60))


def test_sums_are_in_rank_order_whatever_the_root():
    tables = schedule.tables("reduce", 5, 10, 3, 4, 0, 10)
    assert list(tables.sources[0]) == [5, 0, 1, 2, 3, 4]


@pytest.mark.parametrize(("n_elems", "n_ranks", "piece"), [
    (100, 4, 2048),           # a piece has at least 8 KiB
    (1 << 18, 4, 1 << 14),    # four pieces a rank
    (1 << 24, 2, 1 << 17),    # and at most 512 KiB
])
def test_pieces_balance_the_ranks_work(n_elems, n_ranks, piece):
    assert schedule.chunk_elems(n_elems, n_ranks, 4) == piece
    lengths = np.diff(schedule.tables("allreduce", n_ranks, n_elems, 0, 4, 0, n_elems).chunks[:, :2])
    assert lengths.max() == min(piece, n_elems)


@pytest.mark.parametrize(("collective", "right"), [
    ("reduce_scatter", [((0, 1, 2), (1,)), ((0, 1, 2), (0,)), ((0, 1, 2), (1,))]),
    ("allgather", [((1,), (0, 2)), ((0,), (1, 2)), ((1,), (0, 2))]),
    ("gather", [((1,), (0,)), ((1,), (0,))])])
def test_parts_that_are_given(collective, right):
    """Elements 2 to 9 but for 5 and 6; rank 1 owns both ends."""
    found = schedule.segments(collective, 3, 12, 0, ((2, 4, 1), (4, 5, 0), (7, 9, 1)))
    assert [(part.sources, part.targets) for part in found] == right
    assert [(part.start, part.end) for part in found if part.targets != (0,) or collective == "gather"][0] == (2, 4)


@pytest.mark.parametrize(("collective", "n_ranks", "right"), [
    ("reduce_doubled", 3, [(2, 0)]), ("reduce_doubled", 1, [(0,)]),
    ("reduce_scatter_doubled", 3, [(0, 1), (1, 2), (2, 0)])])
def test_results_for_two_ranks_each(collective, n_ranks, right):
    found = schedule.segments(collective, n_ranks, 12, n_ranks - 1)
    assert [part.targets for part in found] == right
    assert all(part.sources == tuple(range(n_ranks)) for part in found)


def test_an_unknown_collective():
    with pytest.raises(ValueError, match="no such collective: 'scatter'"):
        schedule.segments("scatter", 2, 3)
