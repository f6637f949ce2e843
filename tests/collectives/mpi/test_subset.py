"""Communicators of some ranks, made by those alone."""

import numpy as np
import pytest

from scaffe.collectives import CommError


def test_some_ranks_make_one_while_the_others_go_on(communicator):
    chosen = list(range(communicator.n_ranks))[::-2]
    if communicator.rank not in chosen:
        assert communicator.subset(chosen) is None
        return
    made = communicator.subset(chosen)
    assert (made.rank, made.n_ranks, made.deadline) == (chosen.index(communicator.rank), len(chosen), 120)
    here, there = made.topology.node_of_rank, [communicator.topology.node_of_rank[rank] for rank in chosen]
    assert [[a == b for a in here] for b in here] == [[a == b for a in there] for b in there]
    array = np.arange(1001.0) * (communicator.rank + 1)
    made.allreduce(array)
    assert np.array_equal(array, np.arange(1001.0) * sum(rank + 1 for rank in chosen))


def test_groups_that_overlap(communicator):
    for first in range(communicator.n_ranks):
        pair = [first, (first + 1) % communicator.n_ranks]
        if communicator.rank in pair and communicator.n_ranks > 1:
            assert communicator.subset(pair).allgather_objects(communicator.rank) == pair


@pytest.mark.parametrize(("ranks", "match"), [([0, 0], "ranks must differ from one another, not"),
                                              ([-1], "ranks must be a rank below"), (["0"], "must be an integer")])
def test_mistakes_send_nothing(communicator, ranks, match):
    with pytest.raises(CommError, match=match):
        communicator.subset(ranks)
    communicator.barrier()
