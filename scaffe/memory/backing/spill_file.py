"""A file without a name on a local disk that holds what does not fit in memory.

It never has a name, so that the system removes it with the process, however that ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from scaffe import temporary
from scaffe.errors import UserError
from scaffe.mapped_files import WriteBack

NAME = "scaffe-spill"  # where a file needs one for a moment
CHUNK_BYTES = 8 << 20  # of one read or write


class SpillFile:
    """Reads and writes past the page cache if the file system can.

    Attributes:
        descriptor: of the open file.

    Raises:
        UserError: if there is no such folder, or no file can be made in it.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.n_bytes = 0
        if not Path(folder).is_dir():
            raise UserError(f"-spill {folder}: there is no such folder")
        try:
            self.descriptor = temporary.make_nameless(Path(folder), NAME, is_direct=True)
        except OSError as error:
            raise UserError(f"-spill {folder}: {error.strerror}") from error
        self._written = WriteBack(os.dup(self.descriptor), folder, "parameters or histories")

    def check(self) -> None:
        """Raise UserError if the disk has failed to write pages of the mapped file."""
        if fault := self._written.fault():
            raise UserError(f"-spill: {fault}")

    def reserve(self, n_bytes: int) -> None:
        """Make the file so long, with disk blocks for all of it. Raises UserError if the disk has too few."""
        if n_bytes <= self.n_bytes:
            return
        free = self.free_bytes + self.n_bytes
        if n_bytes > free:
            raise UserError(f"-spill {self.folder}: {n_bytes:,} bytes are needed, the disk has {free:,} free")
        try:
            os.posix_fallocate(self.descriptor, self.n_bytes, n_bytes - self.n_bytes)
        except OSError as error:
            raise UserError(f"-spill {self.folder}: {n_bytes:,} bytes are needed: {error.strerror}") from error
        self.n_bytes = n_bytes

    @property
    def free_bytes(self) -> int:
        space = os.fstatvfs(self.descriptor)
        return space.f_bavail * space.f_frsize

    def write(self, array: np.ndarray, offset: int) -> None:
        """Write an array, uint8, whole pages at a page's boundary. Raises UserError."""
        self._move(array, offset, lambda part, at: os.pwrite(self.descriptor, part, at), "written")

    def read(self, array: np.ndarray, offset: int) -> None:
        """Read into an array, uint8, whole pages at a page's boundary. Raises UserError."""
        self._move(array, offset, lambda part, at: os.preadv(self.descriptor, [part], at), "read")

    def _move(self, array: np.ndarray, offset: int, move: Callable[[memoryview, int], int], done: str) -> None:
        view, at = array.data, 0
        while at < len(view):
            try:
                n_moved = move(view[at:at + CHUNK_BYTES], offset + at)
            except OSError as error:
                raise UserError(f"-spill {self.folder}: {len(view):,} bytes could not be {done}: "
                                f"{error.strerror}") from error
            if n_moved == 0:
                raise UserError(f"-spill {self.folder}: the file ends before {len(view):,} bytes were {done}")
            at += n_moved

    def close(self) -> None:
        """Close the file, which gives its disk blocks back."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
