"""Which visits fall to which rank: pure arithmetic.

A *visit* is a place in the order in which one process alone would read: visit v is the v-th sample it would see.
Ranks share the visits out; an order turns visits into record numbers. So what is trained on does not depend on
the number of ranks, and a resumed run reads on where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np


def batch_elems(global_batch: int, rank: int, ranks: int) -> int:
    """How many samples of a global batch fall to this rank: those with index = rank mod ranks."""
    return len(range(rank, global_batch, ranks))


def visits_in_training(global_batch: int, rank: int, ranks: int, first_batch: int = 0,
                       first_visit: int = 0) -> Iterator[np.ndarray]:
    """The visits of one rank, batch after batch without end.

    Args:
        global_batch: samples of all ranks together; under weak scaling the net's batch times the number of ranks.
        rank, ranks: this rank and how many there are.
        first_batch: where to start, for a run that goes on.
        first_visit: the same in visits, where other ranks have read other batches before; added to it.

    Yields:
        int64 visits, ascending; batch i of all ranks together is global_batch*i .. global_batch*(i+1) - 1, and
        first_visit behind that.
    """
    own = np.arange(rank, global_batch, ranks, dtype=np.int64)
    for batch in count(first_batch):
        yield first_visit + batch * global_batch + own


def visits_in_tests(batch: int, n_iterations: int, rank: int, ranks: int,
                    first_test: int = 0) -> Iterator[np.ndarray]:
    """The visits of one rank through test after test, whole batches at a time.

    Args:
        batch: samples of one test iteration.
        n_iterations: test_iter, iterations of one test; this rank does those with number = rank mod ranks.
        rank, ranks: this rank and how many there are.
        first_test: how many tests have been before, for a run that goes on.

    Yields:
        int64 visits, as Caffe reads: each test goes on where the one before stopped. None at all for a rank to which
        no iteration of a test falls.
    """
    if rank >= n_iterations:
        return
    own = np.arange(batch, dtype=np.int64)
    for test in count(first_test):
        for iteration in range(rank, n_iterations, ranks):
            yield (test * n_iterations + iteration) * batch + own
