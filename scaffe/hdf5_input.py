"""Reads HDF5 files of unknown origin safely: nothing outside the file, and no more data than the file can hold.

A file can refer to other files (external links, external storage, virtual datasets), and a few bytes of it can stand
for any number of values (datasets that were never written, or are highly compressed). Both are refused here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from scaffe.errors import ExpectedError
from scaffe.input_files import most_unpacked_bytes, open_input, told

MakeError = Callable[[str], ExpectedError]
CHECKSUM_BYTES = 4  # fletcher32
# what h5py raises for damaged files
UNREADABLE = (OSError, RuntimeError, LookupError, TypeError, ValueError, AttributeError, OverflowError, MemoryError,
              NotImplementedError, ArithmeticError)


def h5py_module(error: MakeError) -> ModuleType:
    """The h5py module; raises ``error`` where it is not installed."""
    try:
        return importlib.import_module("h5py")
    except ImportError:
        raise error("HDF5 files need the package h5py: pip install h5py") from None


class Hdf5Input:
    """An open file, with a limit on the bytes that may still be read from it.

    Attributes:
        root: the h5py.File.
        path: the file's name, for messages.
    """

    def __init__(self, root: Any, path: str | Path, n_bytes: int, error: MakeError) -> None:
        self.root, self.path, self._n_bytes, self._error = root, path, n_bytes, error
        self._left = most_unpacked_bytes(n_bytes)

    def check(self, dataset: Any, name: str) -> None:
        """Raises the file's error if a dataset is stored outside the file or claims more data than the file holds."""
        if dataset.external or dataset.is_virtual:
            raise self._error(f"{self.path}: dataset {name!r} lies in other files, which is not followed")
        n_bytes = dataset.dtype.itemsize * max(prod(dataset.shape), prod(dataset.chunks or ()))
        if n_bytes > self._left:
            raise self._error(f"{self.path}: dataset {name!r} of shape {dataset.shape} takes {n_bytes} bytes, "
                              f"more than a file of {self._n_bytes} bytes may hold")
        if dataset.chunks and _has_short_chunk(dataset):
            raise self._error(f"{self.path}: dataset {name!r} is damaged: a piece of it has no bytes")

    def array(self, dataset: Any, name: str, dtype: Any = np.float32) -> np.ndarray:
        """A dataset's values as ``dtype`` (None: as stored). Raises as ``check``; the limit is shared by all calls."""
        self.check(dataset, name)
        values = np.asarray(dataset[()])
        self._left -= values.nbytes
        if dtype is None:
            return values
        with np.errstate(over="ignore", invalid="ignore"):  # doubles beyond float32 become infinite, as in Caffe
            return values.astype(dtype, copy=False)


def _has_short_chunk(dataset: Any) -> bool:
    """Whether a chunk is no longer than its checksum; HDF5 2.0 crashes when it strips the checksum from one."""
    if not hasattr(dataset.id, "chunk_iter"):  # HDF5 before 1.12.3
        return False
    return bool(dataset.id.chunk_iter(lambda chunk: chunk.size <= CHECKSUM_BYTES or None))


@contextmanager
def hdf5_input(path: str | Path, error: MakeError) -> Iterator[Hdf5Input]:
    """Open a file for reading, as a context manager.

    Args:
        path: the file.
        error: makes the exception to raise, from its one-line message, if the file is missing, is not HDF5, is damaged
            (even if that shows only in the body of the ``with``), or links to other files.
    """
    h5py = h5py_module(error)
    with told(path, error), open_input(path) as file:
        n_bytes = file.seek(0, 2)
    try:
        with h5py.File(path, "r") as root:
            if root.id.links.visit(lambda name, info: info.type == h5py.h5l.TYPE_EXTERNAL or None, info=True):
                raise error(f"{path}: has links into other files, which are not followed")
            yield Hdf5Input(root, path, n_bytes, error)
    except ExpectedError:
        raise
    except UNREADABLE as cause:
        raise error(f"{path}: not an HDF5 file, or a damaged one") from cause
