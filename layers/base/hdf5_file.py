"""A file for the HDF5 library to write to. The library crashes if a write fails, so failures are only noted here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from scaffe.atomic_files import open_new


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
