"""Computes the mean image of a database (Caffe 1.0, tools/compute_image_mean)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import prod

import numpy as np

from scaffe.data.convert.ahead import map_ahead
from scaffe.data.sources.source import Run, Shape, Source
from scaffe.errors import DataError

BYTES_AT_ONCE = 1 << 24  # that a thread reads
MOST_SAMPLES = 257  # of bytes that a thread sums up in 16 bits, a third of the time of double: 257 · 255 just fits


def mean_image(source: Source, n_threads: int = 1) -> np.ndarray:
    """The mean of all samples of a source.

    The sum is kept in double precision, so any number of images gives an accurate mean; Caffe sums in single
    precision. Threads read, and sum up bytes, which is exact in any order; floats are added in the records' order, so
    that the mean does not depend on the number of threads.

    Args:
        source: the samples.
        n_threads: reading threads.

    Returns:
        float32 (channels, height, width).

    Raises:
        DataError: a record cannot be read, has another shape than the first, or there is none.
    """
    from scaffe.data.kernels.images import add_samples

    if not source.n_records:
        raise DataError("there is no record to take the mean of")
    first = next(source.read(np.arange(1)))
    shape, is_bytes, sums = first.shape, first.pixels.dtype == np.uint8, np.zeros(prod(first.shape))
    n_at_once = min(max(BYTES_AT_ONCE // (first.pixels.itemsize * sums.size), 1), MOST_SAMPLES)
    chunks = [np.arange(start, min(start + n_at_once, source.n_records))
              for start in range(0, source.n_records, n_at_once)]
    read = partial(_bytes_sum if is_bytes else _floats, source, shape)
    with ThreadPoolExecutor(n_threads) as pool:
        for records, found in zip(chunks, map_ahead(pool, read, iter(chunks), n_threads + 1), strict=True):
            if isinstance(found, np.ndarray) and is_bytes:
                sums += found
                continue
            is_bytes = False  # from here on sums are rounded
            for run in _runs(source, shape, records) if found is None or isinstance(found, np.ndarray) else found:
                add_samples(*_planes(run), sums)
    return (sums / source.n_records).astype(np.float32).reshape(shape)


def _runs(source: Source, shape: Shape, records: np.ndarray) -> Iterator[Run]:
    """The records' samples. Raises DataError for the first of another shape."""
    done = int(records[0])
    for run in source.read(records):
        if run.shape != shape:
            raise DataError(f"{source.name_of(done)} has the shape {run.shape}, the first record {shape}")
        yield run
        done += len(run.starts)


def _bytes_sum(source: Source, shape: Shape, records: np.ndarray) -> np.ndarray | None:
    """The sum of MOST_SAMPLES samples of bytes or fewer, as (channels, height, width); None if there are floats."""
    from scaffe.data.kernels.images import add_samples

    planes, interleaved = (np.zeros(prod(shape), np.uint16) for _ in range(2))
    for run in _runs(source, shape, records):
        if run.pixels.dtype != np.uint8:
            return None
        add_samples(run.pixels, run.starts, interleaved if run.interleaved else planes)
    channels, height, width = shape
    return planes + np.moveaxis(interleaved.reshape(height, width, channels), -1, 0).reshape(-1)


def _floats(source: Source, shape: Shape, records: np.ndarray) -> list[Run] | None:
    """The samples if all are floats, else None."""
    found = []
    for run in _runs(source, shape, records):
        if run.pixels.dtype == np.uint8:
            return None
        found.append(run)
    return found


def _planes(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """The run's pixels with every sample in (channels, height, width) order, and the start of each sample."""
    if not run.interleaved:
        return run.pixels, run.starts
    channels, height, width = run.shape
    images = [run.pixels[start:start + prod(run.shape)].reshape(height, width, channels) for start in run.starts]
    planes = np.concatenate([np.moveaxis(image, -1, 0).reshape(-1) for image in images])
    planes.flags.writeable = False
    return planes, np.arange(len(images), dtype=np.int64) * prod(run.shape)
