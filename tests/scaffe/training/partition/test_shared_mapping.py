"""Memory that ranks map together is mapped by its first use, and once."""

import numpy as np

from scaffe.training.partition.group import SharedMapping


class Ranks:
    """Stands for a Group, and counts what is mapped."""

    def __init__(self):
        self.mapped = []

    def zeros(self, n_elems, dtype):
        self.mapped.append((n_elems, dtype))
        return np.zeros(n_elems, dtype)


def test_ranks_wait_for_one_another_at_the_first_use_alone():
    ranks = Ranks()
    room = SharedMapping(ranks, (2, 3, 5), np.float64)
    assert ranks.mapped == []
    room.array[1, 2, 4] = 7
    assert room.array.shape == (2, 3, 5) and room.array.sum() == 7
    assert ranks.mapped == [(30, np.float64)]
