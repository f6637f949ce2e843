"""What HDF5's library writes to: it crashes where a write fails, so failures wait here until somebody asks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class PatientFile:
    """A new, empty file. After the first failure nothing reaches the disk, and what is read is zeros.

    Args:
        path: the file. Raises OSError where it cannot be made.

    Attributes:
        error: the first failure; None while there is none.
    """

    def __init__(self, path: str | Path) -> None:
        self.error: OSError | None = None
        self._file = Path(path).open("w+b", buffering=0)  # noqa: SIM115 - open as long as this lives
        self._at = self._end = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place, which may lie behind the end."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        return self._at

    def tell(self) -> int:
        """The place."""
        return self._at

    def write(self, content: Any) -> int:
        """Write all of it, or remember why not."""
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
        """What lies there, and zeros where nothing does."""
        found = b"" if self.error else os.pread(self._file.fileno(), n_bytes, self._at)
        self._at += n_bytes
        return found.ljust(n_bytes, b"\0")

    def truncate(self, n_bytes: int) -> int:
        """Set the length."""
        try:
            if self.error is None:
                self._file.truncate(n_bytes)
        except OSError as error:
            self.error = error
        self._end = n_bytes
        return n_bytes

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()
