"""Divides the visits among the ranks.

A *visit* is a place in the order in which a single process would read: visit v is the v-th sample it would see,
counted from 0 and on through all epochs. Each rank takes some of the visits, and an order (``in_order``, ``shuffle``)
turns visits into record numbers. So the samples of a training batch do not depend on the number of ranks, and a
resumed run reads on where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np


def batch_elems(global_batch: int, rank: int, ranks: int) -> int:
    """Number of samples of a global batch that this rank reads: those with index % ranks == rank."""
    return len(range(rank, global_batch, ranks))


def visits_in_training(global_batch: int, rank: int, ranks: int, first_batch: int = 0,
                       first_visit: int = 0) -> Iterator[np.ndarray]:
    """The training visits of one rank, batch after batch without end.

    Args:
        global_batch: samples in a batch of all ranks together; with weak scaling the net's batch size times ranks.
        rank, ranks: this rank and the number of ranks.
        first_batch: global batches to leave out at the start.
        first_visit: visits to leave out before those, for a resumed run whose global batch may have had another length.

    Yields:
        int64 visits of one batch, ascending. Batch i of all ranks together is visits
        first_visit + global_batch*i .. first_visit + global_batch*(i+1) - 1, i counted from first_batch.
    """
    own = np.arange(rank, global_batch, ranks, dtype=np.int64)
    for batch in count(first_batch):
        yield first_visit + batch * global_batch + own


def visits_in_tests(batch: int, n_iterations: int, rank: int, ranks: int,
                    first_test: int = 0) -> Iterator[np.ndarray]:
    """The visits of one rank in test after test, without end. A test iteration is done by one rank alone.

    Args:
        batch: samples in one test iteration.
        n_iterations: test_iter, iterations in one test; this rank does those with iteration % ranks == rank.
        rank, ranks: this rank and the number of ranks.
        first_test: tests to leave out at the start, for a resumed run.

    Yields:
        int64 visits of one iteration, ascending. Each test goes on where the one before stopped, as in Caffe. A rank
        that has no iteration of a test gets nothing.
    """
    if rank >= n_iterations:
        return
    own = np.arange(batch, dtype=np.int64)
    for test in count(first_test):
        for iteration in range(rank, n_iterations, ranks):
            yield (test * n_iterations + iteration) * batch + own
