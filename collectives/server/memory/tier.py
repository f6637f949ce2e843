"""Where tables lie: in memory, or in a file on a disk, of which only what is worked on is in memory."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from scaffe import lost_pages, temporary
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.server.memory.common import mapped
from scaffe.write_back import WriteBack

NAME = "scaffe-tables"  # where the file needs one for a moment
PIECE_BYTES = 256 << 10
"""Of an array that is gone through in a turn."""
FOLIO_BYTES = 2 << 20
"""A page that is used may bring those beside it that the system's cache has in one piece, aligned to so much."""
RESIDENT_BYTES = 2 * FOLIO_BYTES
"""Of an array that is gone through: as much of it is in memory, at most."""


class InMemory:
    """Tables that stay in memory.

    Attributes:
        keeps_all: whether they do.
    """

    keeps_all = True

    def leave(self, addresses: np.ndarray, n_bytes: int) -> None:
        """So many bytes at each of these addresses, int64, are not worked on any more; others than the tables' are
        ignored. What they hold stays."""

    def leave_all(self) -> None:
        """Nothing is worked on any more."""

    def pieces(self, array: np.ndarray) -> Iterator[slice]:
        """Slices in which to go through a flat array of the tables; each leaves memory after its turn."""
        yield slice(0, array.size)

    def fault(self) -> str:
        """What of the tables a disk has failed to write, in one line, as far as this rank is the one to say it; empty:
        nothing is known. What was read before is right then."""
        return ""

    def look(self) -> None:
        """Raise CommError if there is a fault."""
        if found := self.fault():
            raise CommError(found)


class InFile(InMemory):
    """A file that all ranks of a node map. It has no name, so that it goes with the last process that maps it.

    A page that leaves is the file's in the system's cache, which writes it and gives it up when memory is wanted: to
    leave too early costs time, and never a value.

    Args:
        communicator: all ranks; each node has a file of its own. Collective.
        n_bytes: its length.
        folder: of it.

    Attributes:
        memory: uint8, (n_bytes,), zero at first.

    Raises:
        CommError: on every rank, if the disk has no room for it on one node, or it cannot be mapped.
    """

    keeps_all = False

    def __init__(self, communicator: Communicator, n_bytes: int, folder: str) -> None:
        self._written: WriteBack | None = None  # on one rank of a node

        def create(n_bytes: int) -> tuple[int, mmap.mmap]:
            fd, pages = _file(folder, n_bytes)
            self._written = WriteBack(os.dup(fd), folder, "a parameter server's tables")
            return fd, pages

        pages = mapped(communicator, max(n_bytes, 1), create)
        if pages is None:
            raise RuntimeError("a file was made and not mapped")
        self._pages, self.memory = pages, np.frombuffer(pages, np.uint8)
        self._start = self.memory.ctypes.data
        lost_pages.watch(self.memory, f"folder {folder}", communicator.rank if communicator.n_ranks > 1 else -1)

    def leave(self, addresses: np.ndarray, n_bytes: int) -> None:
        """See InMemory."""
        for at in (addresses - self._start).tolist():
            if 0 <= at < len(self._pages):
                first = at // FOLIO_BYTES * FOLIO_BYTES
                last = min(-(-(at + n_bytes) // FOLIO_BYTES) * FOLIO_BYTES, len(self._pages))
                self._pages.madvise(mmap.MADV_DONTNEED, first, last - first)

    def fault(self) -> str:
        """See InMemory."""
        return "" if self._written is None else self._written.fault()

    def leave_all(self) -> None:
        """See InMemory."""
        self._pages.madvise(mmap.MADV_DONTNEED)

    def pieces(self, array: np.ndarray) -> Iterator[slice]:
        """See InMemory."""
        start, n_elems = np.array([array.ctypes.data]), PIECE_BYTES // array.itemsize
        for at in range(0, array.size, n_elems):
            piece = slice(at, min(at + n_elems, array.size))
            yield piece
            self.leave(start + at * array.itemsize, (piece.stop - at) * array.itemsize)


def _file(folder: str, n_bytes: int) -> tuple[int, mmap.mmap]:
    """A file with disk blocks for all of it. Raises OSError with a line."""
    try:
        fd = temporary.make_nameless(Path(folder), NAME)
        space = os.fstatvfs(fd)
    except OSError as error:
        raise OSError(f"folder {folder}: {error.strerror}") from error
    try:
        if (free := space.f_bavail * space.f_frsize) < n_bytes:
            raise OSError(errno.ENOSPC, f"the disk has {free:,} free")
        os.posix_fallocate(fd, 0, n_bytes)
        return fd, mmap.mmap(fd, n_bytes)
    except OSError as error:
        os.close(fd)
        raise OSError(f"folder {folder}: {n_bytes:,} bytes are needed: {error.strerror}") from error
