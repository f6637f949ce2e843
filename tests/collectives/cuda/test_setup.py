"""What the ranks of a node find out about one another."""

import pytest

from scaffe.collectives.cuda.setup import is_crowded


@pytest.mark.parametrize(("cores_of_ranks", "answer"), [
    ([{0}, {1}, {2}, {3}], False),  # a launcher bound each rank to a core of its own
    ([{0, 1}, {0, 1}], False), ([{0}, {0}], True), ([{0, 1}] * 3, True), ([{5}], False)])
def test_ranks_are_crowded_where_they_are_more_than_the_cores_of_all(cores_of_ranks, answer):
    assert is_crowded(cores_of_ranks) == answer
