"""A rank's part of the data, its random numbers, and where a resumed run goes on reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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


class Draws:
    """Random numbers by visit (see ``visits``): with k numbers a visit, visit v has v*k .. v*k + k - 1 of the stream.

    The stream is MT19937 with the layer's seed. Caffe's single reader takes the same numbers visit after visit, so
    any number of ranks and threads crops and mirrors as one process of Caffe does.

    Args:
        seed: uint32, the layer's.
        n_per_visit: numbers that a visit takes; may be 0.
    """

    def __init__(self, seed: int, n_per_visit: int) -> None:
        self._n, self._next = n_per_visit, 0
        self._generator = np.random.MT19937()
        self._generator._legacy_seeding(seed)

    def take(self, visits: np.ndarray) -> np.ndarray:
        """The numbers of some visits.

        Args:
            visits: int64 (n,), ascending, and above those of earlier calls.

        Returns:
            uint32 (n, n_per_visit).

        Raises:
            ValueError: the visits do not come after those of earlier calls.
        """
        if self._n == 0 or len(visits) == 0:
            return np.zeros((len(visits), self._n), np.uint32)
        first, end = int(visits[0]), int(visits[-1]) + 1
        if first < self._next:
            raise ValueError(f"visits must ascend: visit {first} was asked for after visit {self._next - 1}")
        self._generator.random_raw((first - self._next) * self._n, output=False)
        draws: np.ndarray = self._generator.random_raw((end - first) * self._n).astype(np.uint32).reshape(-1, self._n)
        self._next = end
        chosen: np.ndarray = draws[visits - first]
        return chosen


TRAIN, TEST = 0, 1  # Caffe's Phase


@dataclass
class Share:
    """This rank's part of the data. A resumed run sets the start (``start_at``) before the first batch is asked for.

    Attributes:
        rank, ranks: this rank and the number of ranks.
        weak: weak scaling, the net's batch size is that of each rank; otherwise (strong) that of all ranks together.
        first_batch: TRAIN batches of the net's batch size that all ranks together had read before this run.
        n_test_iterations: test_iter of a TEST net; 0 if every rank reads all of the data, without end.
        first_test: number of tests before this run.
        first_iteration: iteration at which this run starts; ``first_batch`` is the count at this iteration.
        portion: samples of a portion (0: the net's batch size), if TRAIN batches are portions, each asked for by its
            first visit; None if batches follow one another.
        cache_bytes: bytes of samples read in portions that are kept.
        sharing: ranks of a replica of the net; each reads an equal part of the replica's batch.
        batch: the batch size of the training net, once it has a feed; 0 before.
    """

    rank: int = 0
    ranks: int = 1
    weak: bool = False
    first_batch: int = 0
    n_test_iterations: int = 0
    first_test: int = 0
    first_iteration: int = 0
    portion: int | None = None
    cache_bytes: int = 0
    sharing: int = 1
    batch: int = 0

    @property
    def is_uneven(self) -> bool:
        """Whether the training net's batch is shared out in parts of different lengths: some ranks have one sample more
        than the others."""
        return not self.weak and self.portion is None and self.batch % self.ranks > 0

    def text(self) -> str:
        """How many images of an uneven batch each rank has, as text."""
        least, n_more = divmod(self.batch, self.ranks)
        return (f"the batch of {self.batch} images is {least + 1} on {n_more} rank(s) and {least} on "
                f"{self.ranks - n_more}")

    def fault(self, batch: int) -> str:
        """Why a TRAIN batch of this size cannot be shared out; "" if it can."""
        if self.weak or self.portion is not None:
            return ""
        if batch < self.ranks:
            return f"batch_size {batch} is less than one image for each of {self.ranks} ranks"
        if batch % self.sharing:
            return f"batch_size {batch} is not divisible by {self.sharing} ranks that share a replica (-partitions)"
        return ""

    def visits(self, phase: int, batch: int) -> Iterator[np.ndarray]:
        """This rank's visits, batch after batch (see ``order.visits``).

        Args:
            phase: TRAIN or TEST.
            batch: the net's batch size.

        Yields:
            int64 visits of one batch, ascending.
        """
        if phase == TRAIN:
            yield from visits_in_training(self.global_batch(phase, batch), self.rank, self.ranks,
                                          first_visit=self.first_batch * batch)
        elif self.n_test_iterations == 0:
            yield from visits_in_training(batch, 0, 1)
        else:
            yield from visits_in_tests(batch, self.n_test_iterations, self.rank, self.ranks, self.first_test)

    def batch_elems(self, phase: int, batch: int) -> int:
        """Samples in each of this rank's batches, for a net with batch size ``batch``."""
        return batch_elems(self.global_batch(phase, batch), self.rank, self.ranks) if phase == TRAIN else batch

    def batches_read(self, iteration: int, iter_size: int) -> int:
        """TRAIN batches of the net's batch size that all ranks together have read when this iteration begins."""
        since = (iteration - self.first_iteration) * iter_size
        return self.first_batch + since * (self.ranks if self.weak else 1)

    def start_at(self, iteration: int, batches_read: int | None, iter_size: int) -> None:
        """Go on where an earlier run stopped.

        Args:
            iteration: the iteration at which it stopped.
            batches_read: TRAIN batches that its ranks had read together; None if unknown, then it is taken to have
                had as many ranks as this one.
            iter_size: the solver's, batches of the net's batch size in an iteration.
        """
        if batches_read is None:
            batches_read = iteration * iter_size * (self.ranks if self.weak else 1)
        self.first_batch, self.first_iteration = batches_read, iteration

    def global_batch(self, phase: int, batch: int) -> int:
        """Samples in one batch of all ranks together (TRAIN); in TEST each batch belongs to one rank."""
        return batch * self.ranks if self.weak and phase == TRAIN else batch


class GivenVisits(Share):
    """A share whose visits are given, as by a coordinator.

    Args:
        given: visits of each batch.
        n_elems: samples in a batch.
    """

    def __init__(self, given: Iterator[np.ndarray], n_elems: int) -> None:
        super().__init__()
        self._given, self._n_elems = given, n_elems

    def visits(self, phase: int, batch: int) -> Iterator[np.ndarray]:
        """See Share."""
        return self._given

    def batch_elems(self, phase: int, batch: int) -> int:
        """See Share."""
        return self._n_elems
