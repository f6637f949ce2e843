"""A feed: the batches of one data layer on one rank, made ahead by reader threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

from data.errors import DataError
from data.prefetch import Prefetcher
from data.run import Shape, Source
from data.shard import Draws
from data.transform import Transform

Allocate = Callable[[int], np.ndarray]  # n_elems -> flat float32 memory


class Order(Protocol):
    """Turns visits into record numbers (``shard.InOrder`` and others)."""

    def records(self, visits: np.ndarray) -> np.ndarray:
        """Record numbers of these visits, int64."""


@dataclass(frozen=True)
class Plan:
    """Which batches a feed gives.

    Attributes:
        visits: int64 arrays, one a batch, from ``shard.train_visits`` or ``shard.test_visits``.
        batch_elems: samples in each of them.
        order: visits to records.
        seed: uint32, of the crops and mirrorings; the same on every rank.
    """

    visits: Iterator[np.ndarray]
    batch_elems: int
    order: Order
    seed: int = 0


class Batch:
    """One buffer of the ring.

    Attributes:
        images: float32 in storage order, (n, height, width, channels).
        labels: float32 (n,).
    """

    def __init__(self, n: int, shape: Shape, allocate: Allocate) -> None:
        self._allocate = allocate
        self._memory = allocate(n * prod(shape))
        self.labels = allocate(n)
        self.shape_images((n, shape[1], shape[2], shape[0]))

    def shape_images(self, storage_shape: tuple[int, int, int, int]) -> None:
        """Take a shape; memory is kept where it suffices."""
        if prod(storage_shape) > self._memory.size:
            self._memory = self._allocate(prod(storage_shape))
        self.images = self._memory[: prod(storage_shape)].reshape(storage_shape)


class ImageFeed:
    """Images and labels, batch after batch, as Caffe's Data and ImageData layers give them.

    A batch takes its shape from its first record, as in Caffe; shapes may differ from batch to batch if each is of one.

    Attributes:
        shapes: logical shapes of the tops, [(n, channels, height, width), (n,)].
    """

    def __init__(self, source: Source, plan: Plan, transform: Transform, n_threads: int = 1, depth: int = 4,
                 allocate: Allocate | None = None) -> None:
        self._source = source
        first = next(iter(source.read(plan.order.records(np.zeros(1, np.int64)))))
        shape = _shape_after(transform, source, first.shape, int(plan.order.records(np.zeros(1, np.int64))[0]))
        self.shapes: list[tuple[int, ...]] = [(plan.batch_elems, *shape), (plan.batch_elems,)]
        allocate = allocate or (lambda n_elems: np.empty(n_elems, np.float32))
        slots = [Batch(plan.batch_elems, shape, allocate) for _ in range(depth + 1 if n_threads else 1)]
        draws = Draws(plan.seed, transform.draws_per_visit)
        jobs = ((visits, draws.take(visits)) for visits in plan.visits)
        self._prefetcher = Prefetcher(jobs, _Fill(source, plan.order, transform), slots, n_threads)

    def next(self) -> tuple[np.ndarray, ...]:
        """Images (n, height, width, channels) and labels (n,), float32, valid until the next call.

        Raises:
            DataError: a record cannot be read or does not fit; nothing more can be had from the feed then.
        """
        batch = self._prefetcher.next()
        return batch.images, batch.labels

    def next_into(self, outs: Sequence[np.ndarray]) -> None:
        """The next batch copied into given storage-order arrays (one or two: labels may be left out)."""
        for out, made in zip(outs, self.next()):
            out[...] = made

    def close(self) -> None:
        """End the reader threads."""
        self._prefetcher.close()
        self._source.close()


class _Fill:
    """Makes one batch: reads runs and transforms each into its place. Holds no state, so threads share it."""

    def __init__(self, source: Source, order: Order, transform: Transform) -> None:
        self._source, self._order, self._transform = source, order, transform

    def __call__(self, job: tuple[np.ndarray, np.ndarray], batch: Batch) -> None:
        visits, draws = job
        records = self._order.records(visits)
        done = 0
        for run in self._source.read(records):
            n = len(run.starts)
            shape = _shape_after(self._transform, self._source, run.shape, int(records[done]))
            storage = (len(records), shape[1], shape[2], shape[0])
            if done == 0:
                batch.shape_images(storage)
            elif batch.images.shape != storage:
                first = _by([batch.images.shape[axis] for axis in (3, 1, 2)])
                raise DataError(f"{self._source.name_of(int(records[done]))} is {_by(shape)}, the batch's first image "
                                f"is {first}; give crop_size, or one image a batch")
            self._transform.apply(run, draws[done:done + n], batch.images[done:done + n])
            batch.labels[done:done + n] = run.labels
            done += n


def _shape_after(transform: Transform, source: Source, shape: Shape, record: int) -> Shape:
    try:
        return transform.out_shape(shape)
    except DataError as error:
        raise DataError(f"{source.name_of(record)}: {error}") from None


def _by(shape: Sequence[int]) -> str:
    return " x ".join(str(n) for n in shape)
