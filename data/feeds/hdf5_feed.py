"""Feeds of any number of arrays from HDF5 files (Caffe 1.0, HDF5DataLayer)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from scaffe.data.feeds.feed import Allocate, Feed, ReaderOptions, prefetcher
from scaffe.data.feeds.prefetch import Maker
from scaffe.data.order.orders import InOrder, shuffled_files
from scaffe.data.sources.hdf5 import Hdf5Files

DEPTH = 4  # batches prefetched


def hdf5_feed(list_path: str, names: Sequence[str], visits: Iterator[np.ndarray], batch_elems: int, shuffle: bool,
              options: ReaderOptions) -> Feed:
    """Make a feed from HDF5 files.

    Args:
        list_path: text file with the paths of the HDF5 files.
        names: the datasets to read, one for each top.
        visits: int64 (batch_elems,) arrays, one for each batch.
        batch_elems: samples in a batch of this rank.
        shuffle: read the files, and the rows within each file, in random order.
        options: how to read.

    Returns:
        A feed with one top for each dataset, (batch_elems, *row shape).

    Raises:
        DataError: a file or dataset cannot be read (see ``Hdf5Files``), or batches do not fit into memory.
    """
    files = Hdf5Files(list_path, names)
    order = shuffled_files(files.n_rows) if shuffle else InOrder(sum(files.n_rows))
    shapes = [(batch_elems, *shape) for shape in files.shapes]
    jobs = (order.records(visit) for visit in visits)
    maker: Maker[np.ndarray, _Batch] = Maker(lambda rows, slot, _: files.read(rows, slot.logical))
    readers = prefetcher(jobs, maker, lambda allocate: _Batch(shapes, allocate), shapes, DEPTH, options)
    return Feed(shapes, readers, lambda: None, order.n_records)


class _Batch:
    """The buffer of one batch: an array for each top in storage order, and a view of it in Caffe's order."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], allocate: Allocate) -> None:
        flats = [allocate(prod(shape)) for shape in shapes]
        self.arrays = tuple(flat.reshape(_storage(shape)) for flat, shape in zip(flats, shapes, strict=True))
        self.logical = [np.moveaxis(array, -1, 1) if array.ndim >= 4 else array for array in self.arrays]


def _storage(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The storage shape of a logical shape: arrays of 4 or more axes are stored channels-last."""
    return (shape[0], *shape[2:], shape[1]) if len(shape) >= 4 else shape
