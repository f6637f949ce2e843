"""Compiles the readers' kernels ahead, into their cache on disk, so that no first run need wait for them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from data.convert.lmdb_writer import write_lmdb
from data.datum import encode_floats, encode_image
from data.mean import mean_image
from data.run import Run
from data.shuffle import shuffled, shuffled_files
from data.sources.lmdb import LmdbSource
from data.transform import Transform, TransformOptions


def warm() -> None:
    """Read a database of one image of bytes and one of floats through every kernel of the common readers."""
    image = np.zeros((1, 2, 2), np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lmdb"
        write_lmdb(path, [(b"0", encode_image(image, 0)), (b"1", encode_floats(image, 0))])
        source = LmdbSource(path)
        transform = Transform(TransformOptions())
        for run in source.read(np.arange(2)):
            _apply(transform, run)
        mean_image(source)
    for order in (shuffled(2, 0), shuffled_files([2])):
        order.records(np.arange(2))


def _apply(transform: Transform, run: Run) -> None:
    channels, height, width = run.shape
    transform.apply(run, np.zeros((1, 0), np.uint32), np.empty((1, height, width, channels), np.float32))
