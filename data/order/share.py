"""A rank's part of the data, and how much of it has been read before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scaffe.data.order.visits import batch_elems, visits_in_tests, visits_in_training

TRAIN, TEST = 0, 1  # Caffe's Phase


@dataclass
class Share:
    """This rank's part of the data. Its place may be moved until the first batch is asked for (a run that goes on).

    Attributes:
        rank, ranks: this rank and how many there are.
        weak: the net's batch size is each rank's, and the global batch grows with the ranks; else it is shared out.
        first_batch: TRAIN batches, of the net's batch size, that all ranks together have had before.
        first_iteration: the iteration that this was so at.
        n_test_iterations: test_iter of a TEST net; 0 for one read without end, by every rank alike.
        first_test: tests that have been before.
    """

    rank: int = 0
    ranks: int = 1
    weak: bool = False
    first_batch: int = 0
    n_test_iterations: int = 0
    first_test: int = 0
    first_iteration: int = 0

    def visits(self, phase: int, batch: int) -> Iterator[np.ndarray]:
        """This rank's visits, batch after batch, for a net whose batch size is ``batch``."""
        if phase == TRAIN:
            yield from visits_in_training(self.global_batch(phase, batch), self.rank, self.ranks,
                                          first_visit=self.first_batch * batch)
        elif self.n_test_iterations == 0:
            yield from visits_in_training(batch, 0, 1)
        else:
            yield from visits_in_tests(batch, self.n_test_iterations, self.rank, self.ranks, self.first_test)

    def batch_elems(self, phase: int, batch: int) -> int:
        """Samples in each of this rank's batches."""
        return batch_elems(self.global_batch(phase, batch), self.rank, self.ranks) if phase == TRAIN else batch

    def batches_read(self, iteration: int, iter_size: int) -> int:
        """TRAIN batches, of the net's batch size, that all ranks together have had once this iteration is reached."""
        since = (iteration - self.first_iteration) * iter_size
        return self.first_batch + since * (self.ranks if self.weak else 1)

    def start_at(self, iteration: int, batches_read: int | None, iter_size: int) -> None:
        """Go on at an iteration; without a count of batches, as if this many ranks had come there."""
        if batches_read is None:
            batches_read = iteration * iter_size * (self.ranks if self.weak else 1)
        self.first_batch, self.first_iteration = batches_read, iteration

    def global_batch(self, phase: int, batch: int) -> int:
        """Samples of all ranks together in one training batch; a test batch is one rank's."""
        return batch * self.ranks if self.weak and phase == TRAIN else batch
