"""Reads lists of HDF5 files whose datasets have one row for each sample (Caffe 1.0, HDF5DataLayer)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from scaffe import forking
from scaffe.errors import DataError
from scaffe.hdf5_input import Hdf5Input, hdf5_input
from scaffe.input_files import read_text_input

NAMES_TOLD = 10  # most datasets that a message lists
FILES_KEPT = 2  # the one being read and the next, which another thread may be reading


class Hdf5Files:
    """The rows of several datasets that are spread over files. Rows are numbered on from file to file.

    A file's datasets are read whole when one of its rows is asked for, as in Caffe; the last FILES_KEPT files are kept.

    Args:
        list_path: text file with the paths of the HDF5 files, separated by white space.
        names: the datasets to read, one for each top.

    Attributes:
        n_rows: number of rows of each file.
        shapes: shape of one row of each dataset.

    Raises:
        DataError: a file or dataset is missing, a dataset does not hold numbers, the datasets of a file differ in
            length, or files differ in the shapes of their rows.
    """

    def __init__(self, list_path: str, names: Sequence[str]) -> None:
        self._names = list(names)
        self._paths = _paths(list_path)
        try:
            looks = [self._look(path) for path in self._paths]
        except DataError as error:  # a path alone may say little, as "." does
            raise DataError(f"{error} (listed in {list_path})") from error
        for path, (_, shapes) in zip(self._paths, looks, strict=True):
            if shapes != looks[0][1]:
                raise DataError(f"{path}: rows of shapes {shapes}, but {self._paths[0]} has {looks[0][1]}")
        self.n_rows = [n for n, _ in looks]
        self.shapes = looks[0][1]
        self._ends = np.cumsum(self.n_rows)
        self._loaded: OrderedDict[int, list[np.ndarray]] = OrderedDict()
        self._lock = forking.Lock()

    def read(self, rows: np.ndarray, outs: Sequence[np.ndarray]) -> None:
        """Copy rows into arrays.

        Args:
            rows: int64 (n,), row numbers.
            outs: one array for each dataset, (n, *row shape), any strides.

        Raises:
            DataError: a file cannot be read.
        """
        files = np.searchsorted(self._ends, rows, side="right")
        for file in np.unique(files):
            chosen = np.flatnonzero(files == file)
            first = int(self._ends[file]) - self.n_rows[file]
            for out, dataset in zip(outs, self._load(int(file)), strict=True):
                out[chosen] = dataset[rows[chosen] - first]

    def _load(self, file: int) -> list[np.ndarray]:
        with self._lock:
            if file not in self._loaded:
                while len(self._loaded) >= FILES_KEPT:
                    self._loaded.popitem(last=False)
                with hdf5_input(self._paths[file], DataError) as handle:
                    self._loaded[file] = [handle.array(_dataset(handle, name), name) for name in self._names]
            self._loaded.move_to_end(file)
            return self._loaded[file]

    def _look(self, path: str) -> tuple[int, list[tuple[int, ...]]]:
        """A file's number of rows and the shape of one row of each dataset, without reading them."""
        with hdf5_input(path, DataError) as file:
            shapes = [_dataset(file, name).shape for name in self._names]
        if len({shape[0] for shape in shapes}) != 1 or shapes[0][0] == 0:
            found = ", ".join(f"{name} has {shape[0]}" for name, shape in zip(self._names, shapes, strict=True))
            raise DataError(f"{path}: datasets must have the same number of rows, at least one: {found}")
        return shapes[0][0], [shape[1:] for shape in shapes]


def _dataset(file: Hdf5Input, name: str) -> Any:
    """Find a dataset. Raises DataError if it is missing or does not have rows of numbers."""
    dataset = file.root.get(name)
    if not hasattr(dataset, "chunks"):
        names = [name if name.isprintable() else repr(name) for name in islice(file.root, NAMES_TOLD + 1)]
        found = ", ".join(names[:NAMES_TOLD]) + (", ..." if len(names) > NAMES_TOLD else "") or "nothing"
        raise DataError(f"{file.path}: no dataset {name!r}; it has: {found}")
    if not dataset.shape or dataset.dtype.kind not in "fiu":
        raise DataError(f"{file.path}: dataset {name!r} must have rows of numbers, it is {dataset.dtype} "
                        f"of shape {dataset.shape}")
    file.check(dataset, name)
    return dataset


def _paths(list_path: str) -> list[str]:
    try:
        paths = read_text_input(list_path, "surrogateescape").split()
    except OSError as error:
        raise DataError(f"{list_path}: {error.strerror}") from None
    if not paths:
        raise DataError(f"{list_path}: the list of HDF5 files is empty")
    return paths
