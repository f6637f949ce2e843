"""Feeds of images and labels, as Caffe's Data and ImageData layers give them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod

import numpy as np

from data.errors import DataError
from data.feed import Allocate, Feed, Plan, ReaderOptions, plain_memory
from data.prefetch import Prefetcher
from data.run import Shape, Source
from data.shard import Draws
from data.transform import Transform

Job = tuple[np.ndarray, np.ndarray]  # record numbers and their draws


def image_feed(source: Source, plan: Plan, transform: Transform, depth: int = 4,
               options: ReaderOptions = ReaderOptions()) -> Feed:  # noqa: B008 - frozen
    """A feed of (n, channels, height, width) images and (n,) labels.

    A batch takes its shape from its first record, as in Caffe; shapes may differ from batch to batch if each is of one.

    Args:
        source: samples by record number.
        plan: which batches.
        transform: what becomes of each sample.
        depth: batches made ahead.
        options: how to read.

    Raises:
        DataError: the first record cannot be read, or does not fit the transformation.
    """
    reader = _Reader(source, transform, options)
    shape = reader.shape_of(int(plan.order.records(np.zeros(1, np.int64))[0]))
    n, allocate = plan.batch_elems, options.allocate or plain_memory
    slots = [ImageBatch(n, shape, allocate) for _ in range(depth + 1 if options.n_threads else 1)]
    draws, order = Draws(plan.seed, transform.draws_per_visit), plan.order
    jobs = ((order.records(visits), draws.take(visits)) for visits in plan.visits)
    prefetcher = Prefetcher(jobs, reader.fill, slots, options.n_threads)
    return Feed([(n, *shape), (n,)], prefetcher, source.close)


class ImageBatch:
    """One buffer of the ring.

    Attributes:
        images: float32 (n, height, width, channels).
        labels: float32 (n,).
    """

    def __init__(self, n: int, shape: Shape, allocate: Allocate) -> None:
        self._allocate = allocate
        self._memory = allocate(n * prod(shape))
        self.labels = allocate(n)
        self.take_shape((n, shape[1], shape[2], shape[0]))

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Images and labels."""
        return self.images, self.labels

    def take_shape(self, storage_shape: tuple[int, ...]) -> None:
        """Shape the images anew; memory is kept where it suffices."""
        n_elems = prod(storage_shape)
        if n_elems > self._memory.size:
            self._memory = self._allocate(n_elems)
        self.images = self._memory[:n_elems].reshape(storage_shape)


class _Reader:
    """Makes batches: reads runs and transforms each into its place. Threads share it."""

    def __init__(self, source: Source, transform: Transform, options: ReaderOptions) -> None:
        self._source, self._transform, self._options = source, transform, options
        self._bad: set[int] = set()
        self._bad_lock = threading.Lock()

    def shape_of(self, record: int) -> Shape:
        """Shape of a record after the transformation."""
        while True:
            try:
                run = next(iter(self._source.read(np.array([record]))))
                return self._out_shape(run.shape, record)
            except DataError as error:
                record = self._next_after_bad(record, error)

    def fill(self, job: Job, batch: ImageBatch) -> None:
        """Make one batch; one by one where a record is bad and that is allowed."""
        records, draws = job
        try:
            self._fill_from(records, draws, batch, 0)
        except DataError:
            if not self._options.n_bad_allowed:
                raise
            self._fill_one_by_one(records, draws, batch)

    def _fill_one_by_one(self, records: np.ndarray, draws: np.ndarray, batch: ImageBatch) -> None:
        for i, wanted in enumerate(records):
            record = int(wanted)
            while True:
                try:
                    self._fill_from(np.array([record]), draws[i:i + 1], batch, i)
                    break
                except DataError as error:
                    record = self._next_after_bad(record, error)

    def _fill_from(self, records: np.ndarray, draws: np.ndarray, batch: ImageBatch, place: int) -> None:
        """Write the samples of these records from ``place`` on."""
        done = 0
        for run in self._source.read(records):
            n, at = len(run.starts), place + done
            shape = self._out_shape(run.shape, int(records[done]))
            self._fit(batch, shape, at, int(records[done]))
            self._transform.apply(run, draws[done:done + n], batch.images[at:at + n])
            batch.labels[at:at + n] = run.labels
            done += n

    def _fit(self, batch: ImageBatch, shape: Shape, at: int, record: int) -> None:
        storage = (len(batch.labels), shape[1], shape[2], shape[0])
        if at == 0:
            batch.take_shape(storage)
        elif batch.images.shape != storage:
            first = _by([batch.images.shape[axis] for axis in (3, 1, 2)])
            raise DataError(f"{self._source.name_of(record)} is {_by(shape)}, the batch's first image is {first}; "
                            "give crop_size, or one image a batch")

    def _out_shape(self, shape: Shape, record: int) -> Shape:
        try:
            return self._transform.out_shape(shape)
        except DataError as error:
            raise DataError(f"{self._source.name_of(record)}: {error}") from None

    def _next_after_bad(self, record: int, error: DataError) -> int:
        """Note a bad record and give the one to take instead; raises the error where too many are bad."""
        with self._bad_lock:
            if record not in self._bad:
                if len(self._bad) == min(self._options.n_bad_allowed, self._source.n_records - 1):
                    raise error
                self._bad.add(record)
                if self._options.on_bad:
                    self._options.on_bad(f"passed over: {error}")
        return (record + 1) % self._source.n_records


def _by(shape: Sequence[int]) -> str:
    return " x ".join(str(n) for n in shape)
