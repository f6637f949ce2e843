"""A rank's part of the data, and where a resumed run goes on reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scaffe.data.order.visits import batch_elems, visits_in_tests, visits_in_training

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
        portion: TRAIN batches are portions that are asked for by their first visits, of so many samples (0: the net's
            batch size); None where batches follow one another.
        cache_bytes: how much of what was read in portions is kept.
        sharing: ranks that share a net, as many replicas of it as there are: each of a replica reads as many samples.
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
        """Who has how many images of an uneven batch."""
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
    """A share that somebody else decides on.

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
