"""How the ranks of a node share the work among their GPUs."""

from itertools import product

import numpy as np
import pytest

from scaffe.collectives.cuda.ipc.node import gather_ranks, work_of, workers
from scaffe.collectives.planning.planners import COLLECTIVES
from scaffe.collectives.shared.schedule import segments


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("cards", ["ab", "abc", "abcdefgh", "aa", "aaaaa", "abab", "aabbb"])
def test_ranks_shares_are_the_whole_and_do_not_overlap(collective, cards):
    n_ranks = len(cards)
    for n_elems, root in product((0, 1, 63, 64, 65, 1009), (0, 1)):
        working = workers(cards, root)
        assert sorted(cards[rank] for rank in working) == sorted(set(cards))
        assert root in working
        for interval in ((0, n_elems), (n_elems // 3, n_elems)):
            shares = [list(work_of(rank, collective, cards, n_elems, root, interval)) for rank in range(n_ranks)]
            assert all(rank in working for rank, parts in enumerate(shares) if parts)
            found = [(part.start, part.end, part.sources, part.targets) for parts in shares for part in parts]
            count = np.zeros(n_elems, int)
            for start, end, sources, targets in found:
                count[start:end] += 1
                parts = [p for p in segments(collective, n_ranks, n_elems, root) if p.start <= start < p.end]
                assert [(p.sources, p.targets) for p in parts] == [(sources, targets)]
            assert (count[interval[0] : interval[1]] == 1).all()
            assert count.sum() == interval[1] - interval[0]


@pytest.mark.parametrize("collective", ["reduce_scatter", "allgather", "gather"])
@pytest.mark.parametrize("cards", ["abc", "aab", "aaa"])
def test_given_parts_are_worked_on_at_their_owners_gpu(collective, cards):
    owned = ((3, 9, 2), (9, 70, 0), (100, 120, 1), (120, 300, 2))
    found = [(part.start, part.end, rank) for rank in range(3)
             for part in work_of(rank, collective, cards, 300, 0, (0, 300), owned)]
    wanted = [(start, end) for start, end, owner in owned if collective != "gather" or owner]
    assert sorted((start, end) for start, end, _ in found) == wanted
    owner_of = {start: owner for start, _, owner in owned}
    assert all(cards[rank] == cards[owner_of[start]] for start, _, rank in found)


def test_targets_as_the_kernel_takes_them():
    part = segments("bcast", 5, 10, 2)[0]
    assert gather_ranks(part) == (2, 1, 0, 5, 2)
    assert gather_ranks(segments("allreduce", 3, 10)[0]) == (0, 3, 0, 3, -1)
    assert gather_ranks(segments("reduce_scatter", 4, 10)[3]) == (0, 4, 3, 1, -1)


@pytest.mark.parametrize(("collective", "n_elems", "interval"), [
    ("allreduce", 1009, (0, 1009)), ("reduce", 100_003, (0, 100_003)), ("bcast", 100_003, (640, 70_003))])
def test_workers_parts_begin_at_whole_packs_and_are_nearly_equal(collective, n_elems, interval):
    parts = [list(work_of(rank, collective, "abc", n_elems, 0, interval)) for rank in range(3)]
    assert all((part.start - interval[0]) % 64 == 0 for (part,) in parts)
    lengths = [part.end - part.start for (part,) in parts]
    assert max(lengths) - min(lengths) <= 128
