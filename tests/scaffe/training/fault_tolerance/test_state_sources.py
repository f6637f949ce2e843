"""After a loss every element has one giver, the best one that is left."""

import itertools

import numpy as np
import pytest

from scaffe.training.fault_tolerance.recoverable import neighbours, parts


def owned_by(rank):
    """5 ranks: two intervals each of 23 elements, ragged; rank 4's second one is empty."""
    return [slice(rank * 3, rank * 3 + 3), slice(15 + rank * 2, min(15 + rank * 2 + 2, 23))]


@pytest.mark.parametrize("has_copies", [False, True])
@pytest.mark.parametrize("n_left", [1, 2, 3, 4, 5])
def test_each_element_comes_from_its_owner_else_its_copy_else_anybody(n_left, has_copies):
    for left in itertools.combinations(range(5), n_left):
        givers = np.full(23, -1)
        for part in parts(owned_by, 5, left, neighbours([range(5)]) if has_copies else ()):
            assert part.giver in left
            assert (givers[part.interval] == -1).all()
            givers[part.interval] = part.giver if part.is_whole else 100 + part.giver
        for rank in range(5):
            copy = (rank + 1) % 5
            expected = (rank if rank in left else copy if has_copies and copy in left else 100 + left[0])
            for interval in owned_by(rank):
                assert (givers[interval] == expected).all()


@pytest.mark.parametrize("nodes", [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0], [1, 2, 3]], [[0, 1, 2], [3], [4, 5]],
                                   [[0], [1]]])
def test_copies_lie_on_another_node_where_there_is_one(nodes):
    node_of_rank = {rank: number for number, ranks in enumerate(nodes) for rank in ranks}
    for rank, keeper in enumerate(neighbours(nodes)):
        assert node_of_rank[keeper] == (node_of_rank[rank] + 1) % len(nodes)


@pytest.mark.parametrize("nodes", [[[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 3], [1, 4], [2, 5]]])
def test_nodes_of_one_length_keep_one_copy_a_rank_and_outlive_any_one_node(nodes):
    copied_to = neighbours(nodes)
    assert sorted(copied_to) == list(range(len(copied_to)))
    for lost in nodes:
        left = [rank for rank in range(len(copied_to)) if rank not in lost]
        found = parts(lambda rank: [slice(3 * rank, 3 * rank + 3)], len(copied_to), left, copied_to)
        assert all(part.is_whole and part.giver in left for part in found)
