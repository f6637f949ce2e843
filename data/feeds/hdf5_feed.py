"""Feeds of any number of arrays from HDF5 files (Caffe 1.0, HDF5DataLayer)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from scaffe.data.feeds.feed import Allocate, Feed, ReaderOptions, plain_memory
from scaffe.data.feeds.memory import check_batches_fit
from scaffe.data.feeds.prefetch import Prefetcher
from scaffe.data.order.in_order import InOrder
from scaffe.data.order.shuffle import shuffled_files
from scaffe.data.sources.hdf5 import Hdf5Files

DEPTH = 4  # batches made ahead


def hdf5_feed(list_path: str, names: Sequence[str], visits: Iterator[np.ndarray], batch_elems: int, shuffle: bool,
              options: ReaderOptions) -> Feed:
    """A feed of one top a dataset, (n, *row shape).

    Args:
        list_path: text file of paths of HDF5 files.
        names: datasets.
        visits: int64 arrays, one a batch.
        batch_elems: samples in each.
        shuffle: files, and rows within files, in random order.
        options: how to read.

    Raises:
        DataError: as Hdf5Files.
    """
    files = Hdf5Files(list_path, names)
    order = shuffled_files(files.n_rows) if shuffle else InOrder(sum(files.n_rows))
    shapes = [(batch_elems, *shape) for shape in files.shapes]
    n_slots = DEPTH + 1 if options.n_threads else 1
    check_batches_fit(n_slots, shapes)
    slots = [_Batch(shapes, options.allocate or plain_memory) for _ in range(n_slots)]
    jobs = (order.records(visit) for visit in visits)
    prefetcher = Prefetcher(jobs, lambda rows, slot: files.read(rows, slot.logical), slots, options.n_threads)
    return Feed(shapes, prefetcher, lambda: None)


class _Batch:
    """One buffer of the ring: an array a top, and the same in Caffe's order."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], allocate: Allocate) -> None:
        flats = [allocate(prod(shape)) for shape in shapes]
        self.arrays = tuple(flat.reshape(_storage(shape)) for flat, shape in zip(flats, shapes, strict=True))
        self.logical = [np.moveaxis(array, -1, 1) if array.ndim >= 4 else array for array in self.arrays]


def _storage(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Images are stored channels-last."""
    return (shape[0], *shape[2:], shape[1]) if len(shape) >= 4 else shape
