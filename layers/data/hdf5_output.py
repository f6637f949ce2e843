"""The HDF5Output layer, and a file whose writes never fail, since the HDF5 library crashes if a write does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scaffe.atomic_files import open_new
from scaffe.errors import LayerError
from scaffe.layers.base.bases import NoGradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.proto.byte_text import path_of


class PatientFile:
    """A new, empty file whose writes never raise.

    After the first failed write nothing more is written to disk, and reads give zeros.

    Args:
        path: the file.

    Attributes:
        error: the first failure; None if there was none. The caller checks it when HDF5 is done.

    Raises:
        OSError: the file cannot be created.
    """

    def __init__(self, path: str | Path) -> None:
        self.error: OSError | None = None
        self._file = open_new(path)
        self._at = self._end = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position, in bytes, which may lie beyond the end. Returns it from the start of the file."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        return self._at

    def tell(self) -> int:
        """The position in bytes."""
        return self._at

    def write(self, content: Any) -> int:
        """Write all of the content at the position, or note the failure in ``error``. Returns its length in bytes."""
        rest = memoryview(content).cast("B")
        n_bytes = len(rest)
        try:
            while self.error is None and rest:
                n_written = os.pwrite(self._file.fileno(), rest, self._at + n_bytes - len(rest))
                rest = rest[n_written:]
        except OSError as error:
            self.error = error
        self._at += n_bytes
        self._end = max(self._end, self._at)
        return n_bytes

    def read(self, n_bytes: int) -> bytes:
        """Read n_bytes from the position on; zeros beyond the end, and after a failure."""
        found = b"" if self.error else os.pread(self._file.fileno(), n_bytes, self._at)
        self._at += n_bytes
        return found.ljust(n_bytes, b"\0")

    def truncate(self, n_bytes: int) -> int:
        """Set the file's length to n_bytes, or note the failure in ``error``."""
        try:
            if self.error is None:
                self._file.truncate(n_bytes)
        except OSError as error:
            self.error = error
        self._end = n_bytes
        return n_bytes

    def flush(self) -> None:
        """Nothing to do: writes are not buffered."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


DATASETS = ("data", "label")


@layer_types.register("HDF5Output")
class Hdf5Output(NoGradient):
    """Appends bottom 0 to the dataset "data" and bottom 1 to the dataset "label" at every forward.

    Both datasets have the axes (N, C, H, W); axes that a bottom lacks have length 1. Every forward flushes the file, so
    that it is complete after each batch. Caffe 1.0's own layer fails at the second batch; this one appends it.
    """

    n_bottoms = (2, 2)
    n_tops = (0, 0)
    host_only = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Create the file or empty it. Raises LayerError if h5py is missing or the file cannot be written."""
        name = self.param.hdf5_output_param.file_name
        try:
            import h5py

            self._out = PatientFile(path_of(name))
            self._file = h5py.File(self._out, "w")
        except ImportError as error:
            raise LayerError("needs the package h5py: pip install h5py") from error
        except OSError as error:
            raise self._refusal(error) from error

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Check the bottoms. Raises LayerError if their batch sizes differ or one has more than 4 axes."""
        shapes = [b.shape for b in bottom]
        if shapes[0][:1] != shapes[1][:1] or max(map(len, shapes)) > 4 or not min(map(len, shapes)):
            raise LayerError(f"wants two bottoms of one batch size and 1 to 4 axes, got {shapes[0]}, {shapes[1]}")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Append the batch. Raises LayerError if the items' shape has changed or the file cannot be written."""
        for name, blob in zip(DATASETS, bottom, strict=True):
            items = blob.data.reshape(blob.shape + (1,) * (4 - blob.ndim))
            if name not in self._file:
                self._file.create_dataset(name, data=items, maxshape=(None, *items.shape[1:]))
                continue
            kept = self._file[name]
            if kept.shape[1:] != items.shape[1:]:
                raise LayerError(f"items of {name!r} were {kept.shape[1:]} and are now {items.shape[1:]}")
            kept.resize(len(kept) + len(items), axis=0)
            kept[-len(items) :] = items
        self._file.flush()
        if self._out.error:
            self.close()
            raise self._refusal(self._out.error)

    def _refusal(self, error: OSError) -> LayerError:
        name = self.param.hdf5_output_param.file_name
        return LayerError(f"hdf5_output_param.file_name {name!r} cannot be written: {(error.strerror or '').lower()}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._out.close()
