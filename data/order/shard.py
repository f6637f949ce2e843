"""Who reads which record when: pure arithmetic over visits.

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


def train_visits(global_batch: int, rank: int, ranks: int, first_batch: int = 0,
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


def test_visits(batch: int, n_iterations: int, rank: int, ranks: int, first_test: int = 0) -> Iterator[np.ndarray]:
    """The visits of one rank through test after test, whole batches at a time.

    Args:
        batch: samples of one test iteration.
        n_iterations: test_iter, iterations of one test; this rank does those with number = rank mod ranks.
        rank, ranks: this rank and how many there are.
        first_test: how many tests have been before, for a run that goes on.

    Yields:
        int64 visits, as Caffe reads: each test goes on where the one before stopped.
    """
    own = np.arange(batch, dtype=np.int64)
    for test in count(first_test):
        for iteration in range(rank, n_iterations, ranks):
            yield (test * n_iterations + iteration) * batch + own


test_visits.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever pytest may think


class InOrder:
    """Records one after another, from the first again after the last.

    Args:
        n_records: of the source.
        skip: records left out at the very start (Caffe's rand_skip).
    """

    def __init__(self, n_records: int, skip: int = 0) -> None:
        self.n_records, self.skip = n_records, skip

    def records(self, visits: np.ndarray) -> np.ndarray:
        """Record numbers of these visits, int64."""
        return (visits + self.skip) % self.n_records


class Draws:
    """The raw random numbers of visits: visit v of a layer with k draws a visit has numbers v*k .. v*k + k - 1.

    The stream is MT19937 from the layer's own seed, as in Caffe, whose one reader takes them in the order of visits;
    so any number of ranks and threads crops and mirrors as one process of Caffe does.

    Args:
        seed: uint32.
        n_per_visit: draws a visit takes; may be 0.
    """

    def __init__(self, seed: int, n_per_visit: int) -> None:
        self._n, self._next = n_per_visit, 0
        self._generator = np.random.MT19937()
        self._generator._legacy_seeding(seed)  # type: ignore[attr-defined]

    def take(self, visits: np.ndarray) -> np.ndarray:
        """The draws of these visits, uint32 (n, n_per_visit). They must ascend, from call to call too (ValueError)."""
        if self._n == 0 or len(visits) == 0:
            return np.zeros((len(visits), self._n), np.uint32)
        first, end = int(visits[0]), int(visits[-1]) + 1
        if first < self._next:
            raise ValueError(f"visits must ascend: visit {first} was asked for after visit {self._next - 1}")
        self._generator.random_raw((first - self._next) * self._n, output=False)
        draws = self._generator.random_raw((end - first) * self._n).astype(np.uint32)
        self._next = end
        return draws.reshape(-1, self._n)[visits - first]
