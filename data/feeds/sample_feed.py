"""Feeds whose samples are made one record at a time, with any number of arrays a sample."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Protocol

import numpy as np

from scaffe.data.errors import DataError
from scaffe.data.feeds.feed import Allocate, Feed, Plan, ReaderOptions, plain_memory
from scaffe.data.feeds.memory import check_batches_fit
from scaffe.data.feeds.prefetch import Prefetcher
from scaffe.data.feeds.tolerance import Tolerance
from scaffe.data.order.draws import Draws

Shapes = list[tuple[int, ...]]


class Sampler(Protocol):
    """Makes samples. Several threads may call it at once.

    Attributes:
        n_records: number of records.
        draws_per_visit: random numbers used for each sample.
    """

    n_records: int
    draws_per_visit: int

    def make(self, record: int, draws: np.ndarray) -> list[np.ndarray]:
        """Make one sample.

        Args:
            record: the record's number.
            draws: uint32 (draws_per_visit,), its random numbers.

        Returns:
            one array for each top, in storage order (channels last), without the batch's axis.

        Raises:
            DataError: the record is bad.
        """


def sample_feed(sampler: Sampler, plan: Plan, options: ReaderOptions, depth: int = 4) -> Feed:
    """Make a feed.

    The first record gives the samples' shapes. With one sample a batch, each batch has the shapes of its own.

    Args:
        sampler: makes the samples.
        plan: which samples make up the batches.
        options: how to read. A bad record that is tolerated is replaced by the next good one.
        depth: batches prefetched.

    Returns:
        a feed with one top for each array of a sample.

    Raises:
        DataError: no sample can be made to begin with, or batches do not fit into memory.
    """
    n, tolerance = plan.batch_elems, Tolerance(options.n_bad_allowed, sampler.n_records, options.on_bad)
    maker = _Maker(sampler, tolerance)
    first = maker.make_good(int(plan.order.records(np.zeros(1, np.int64))[0]),
                            np.zeros(sampler.draws_per_visit, np.uint32))
    shapes: Shapes = [array.shape for array in first]
    n_slots = depth + 1 if options.n_threads else 1
    check_batches_fit(n_slots, [(n, *shape) for shape in shapes])
    slots = [_Batch(n, shapes, options.allocate or plain_memory) for _ in range(n_slots)]
    draws = Draws(plan.seed, sampler.draws_per_visit)
    jobs = ((plan.order.records(visits), draws.take(visits)) for visits in plan.visits)
    prefetcher = Prefetcher(jobs, maker.fill, slots, options.n_threads)
    return Feed([_logical((n, *shape)) for shape in shapes], prefetcher, lambda: None)


class _Batch:
    """The buffer of one batch: float32 arrays (n, *shape), one for each top."""

    def __init__(self, n: int, shapes: Sequence[tuple[int, ...]], allocate: Allocate) -> None:
        self._n, self._allocate = n, allocate
        self._memory = [allocate(n * prod(shape)) for shape in shapes]
        self.take_shapes(shapes)

    def take_shapes(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Change the samples' shapes; allocates only what needs more memory."""
        self.shapes = list(shapes)
        for i, shape in enumerate(shapes):
            if self._n * prod(shape) > self._memory[i].size:
                check_batches_fit(1, [(self._n, *shape)])
                self._memory[i] = self._allocate(self._n * prod(shape))
        self.arrays = tuple(flat[: self._n * prod(shape)].reshape(self._n, *shape)
                            for flat, shape in zip(self._memory, shapes, strict=True))


class _Maker:
    """Fills batches. Threads share one object."""

    def __init__(self, sampler: Sampler, tolerance: Tolerance) -> None:
        self._sampler, self._tolerance = sampler, tolerance

    def fill(self, job: tuple[np.ndarray, np.ndarray], batch: _Batch) -> None:
        """Make the samples of one batch."""
        records, draws = job
        for i, record in enumerate(records.tolist()):
            sample = self.make_good(record, draws[i], None if len(records) == 1 else batch)
            if len(records) == 1:
                batch.take_shapes([array.shape for array in sample])
            for target, array in zip(batch.arrays, sample, strict=True):
                target[i] = array

    def make_good(self, record: int, draws: np.ndarray, batch: _Batch | None = None) -> list[np.ndarray]:
        """The sample of this record or, if it is bad and that is tolerated, of the next good one."""
        while True:
            try:
                sample = self._sampler.make(record, draws)
                _check(sample, batch)
                return sample
            except DataError as error:
                self._tolerance.pass_over(record, error)
                record = (record + 1) % self._sampler.n_records


def _check(sample: list[np.ndarray], batch: _Batch | None) -> None:
    """Raise DataError if the sample does not have the shapes of its batch."""
    if batch is None:
        return
    for array, shape in zip(sample, batch.shapes, strict=True):
        if array.shape != shape:
            came, wanted = (" x ".join(map(str, s)) for s in (array.shape, shape))
            raise DataError(f"a sample is {came}, the first one is {wanted}; give a crop or a size, "
                            "or one sample a batch")


def _logical(storage: tuple[int, ...]) -> tuple[int, ...]:
    """The logical shape, (n, channels, ...), of arrays stored channels-last."""
    return (storage[0], storage[-1], *storage[1:-1]) if len(storage) >= 4 else storage
