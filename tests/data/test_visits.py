"""Every visit falls to one rank, whatever the number of ranks, from any start."""

from itertools import islice

import numpy as np
import pytest

from scaffe.data.order.orders import InOrder
from scaffe.data.order.share import Draws, batch_elems, visits_in_tests, visits_in_training

RANKS = range(1, 9)


def together(parts):
    """All visits of all ranks, sorted."""
    return sorted(int(v) for part in parts for batch in part for v in batch)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("batch", [1, 5, 8, 64])
def test_training_covers_each_visit_once(ranks, batch):
    parts = [list(islice(visits_in_training(batch, rank, ranks), 7)) for rank in range(ranks)]
    assert together(parts) == list(range(7 * batch))


@pytest.mark.parametrize("ranks", RANKS)
def test_ranks_together_train_on_the_batch_of_one(ranks):
    alone = list(islice(visits_in_training(12, 0, 1), 5))
    parts = [list(islice(visits_in_training(12, rank, ranks), 5)) for rank in range(ranks)]
    for i, batch in enumerate(alone):
        assert together([[part[i]] for part in parts]) == batch.tolist()
        assert [len(part[i]) for part in parts] == [batch_elems(12, rank, ranks) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_resumed_run_reads_on(ranks):
    whole = list(islice(visits_in_training(10, ranks - 1, ranks), 9))
    rest = list(islice(visits_in_training(10, ranks - 1, ranks, first_batch=4), 5))
    np.testing.assert_array_equal(whole[4:], rest)


@pytest.mark.parametrize("ranks", RANKS)
def test_tests_cover_each_visit_once_in_whole_batches(ranks):
    n_iterations = 5
    parts = []
    for rank in range(ranks):
        own = len(range(rank, n_iterations, ranks))
        parts.append(list(islice(visits_in_tests(4, n_iterations, rank, ranks), 3 * own)))
    assert together(parts) == list(range(3 * n_iterations * 4))
    assert all(len(batch) == 4 for part in parts for batch in part)


def test_a_later_test_starts_where_the_one_before_stopped():
    whole = list(islice(visits_in_tests(4, 5, 1, 2), 6))
    np.testing.assert_array_equal(whole[2:], list(islice(visits_in_tests(4, 5, 1, 2, first_test=1), 4)))


def test_a_rank_without_a_test_iteration_has_no_visits():
    """Three iterations among eight ranks: ranks 0 to 2 have one each, the others' series end at once."""
    firsts = [next(visits_in_tests(2, 3, rank, 8), None) for rank in range(8)]
    assert [None if first is None else first.tolist() for first in firsts] == [[0, 1], [2, 3], [4, 5], *[None] * 5]


def test_records_wrap_around():
    np.testing.assert_array_equal(InOrder(5, skip=3).records(np.arange(7)), [3, 4, 0, 1, 2, 3, 4])


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_a_visit_has_its_draws_whoever_makes_it(ranks):
    raw = np.random.RandomState(1701).randint(0, 1 << 32, 3 * 60, np.uint64).reshape(60, 3)
    for rank in range(ranks):
        draws = Draws(1701, 3)
        for visits in islice(visits_in_training(12, rank, ranks), 5):
            np.testing.assert_array_equal(draws.take(visits), raw[visits])


def test_draws_start_anywhere_but_never_go_back():
    all_of_them = Draws(7, 2).take(np.arange(100))
    late = Draws(7, 2)
    np.testing.assert_array_equal(late.take(np.array([90, 95])), all_of_them[[90, 95]])
    with pytest.raises(ValueError, match="ascend"):
        late.take(np.array([95]))
