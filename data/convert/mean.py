"""Computes the mean image of a database (Caffe 1.0, tools/compute_image_mean)."""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.data.sources.source import Run, Source
from scaffe.errors import DataError

RECORDS_AT_ONCE = 256


def mean_image(source: Source) -> np.ndarray:
    """The mean of all samples of a source.

    The sum is kept in double precision, so any number of images gives an accurate mean; Caffe sums in single
    precision.

    Returns:
        float32 (channels, height, width).

    Raises:
        DataError: a record cannot be read, has another shape than the first, or there is none.
    """
    from scaffe.data.kernels.images import add_samples

    sums: np.ndarray | None = None
    shape: tuple[int, ...] = ()
    for first in range(0, source.n_records, RECORDS_AT_ONCE):
        records = np.arange(first, min(first + RECORDS_AT_ONCE, source.n_records))
        done = first
        for run in source.read(records):
            if sums is None:
                shape, sums = run.shape, np.zeros(prod(run.shape))
            if run.shape != shape:
                raise DataError(f"{source.name_of(done)} has the shape {run.shape}, the first record {shape}")
            add_samples(*_planes(run), sums)
            done += len(run.starts)
    if sums is None:
        raise DataError("there is no record to take the mean of")
    return (sums / source.n_records).astype(np.float32).reshape(shape)


def _planes(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """The run's pixels with every sample in (channels, height, width) order, and the start of each sample."""
    if not run.interleaved:
        return run.pixels, run.starts
    channels, height, width = run.shape
    images = [run.pixels[start:start + prod(run.shape)].reshape(height, width, channels) for start in run.starts]
    planes = np.concatenate([np.moveaxis(image, -1, 0).reshape(-1) for image in images])
    planes.flags.writeable = False
    return planes, np.arange(len(images), dtype=np.int64) * prod(run.shape)
