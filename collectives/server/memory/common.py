"""Memory that all ranks of one node map: the tables' values, the workers' updates, the mailboxes."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from scaffe import mapped_files, temporary
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.shared import window
from scaffe.collectives.transport.host_memory import shortage
from scaffe.mapped_files import WriteBack

ALIGNMENT = 64  # bytes: a cache line
Create = Callable[[int], tuple[int, mmap.mmap]]
"""Makes so many bytes that processes may share: their descriptor, and the pages. Raises OSError."""


def aligned(n_bytes: int) -> int:
    """``n_bytes`` rounded up to a multiple of a cache line."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def common(communicator: Communicator, n_bytes: int) -> np.ndarray:
    """Allocate zeroed memory that all ranks of a node read and write. Collective among the ranks of all nodes.

    No page has been touched yet, so each page is placed on the NUMA node of the core that first writes to it. The
    memory is freed when the last rank drops its reference.

    Args:
        n_bytes: its length, the same on all ranks of a node.

    Returns:
        uint8 (n_bytes,).

    Raises:
        CommError: on every rank, if a node has less memory left, or it cannot be mapped.
    """
    fault = shortage(n_bytes, f"a parameter server of {n_bytes} bytes")
    pages = mapped(communicator, n_bytes, None if communicator.node_n_ranks == 1 else window.create, fault)
    return np.zeros(n_bytes, np.uint8) if pages is None else np.frombuffer(pages, np.uint8)[:n_bytes]


def mapped(communicator: Communicator, n_bytes: int, create: Create | None, fault: str = "") -> mmap.mmap | None:
    """Pages that one rank of a node makes, and all of its ranks map. Collective among the ranks of all nodes.

    Args:
        n_bytes: how many, the same on all ranks of a node.
        create: what the first of a node's ranks makes them with; None on nodes that want none.
        fault: why this rank cannot have any; empty where it may.

    Raises:
        CommError: on every rank, if one has a fault, or cannot make or map them.
    """
    pages, fd = None, -1
    try:
        if communicator.node_rank == 0 and create is not None and not fault:
            fd, pages = create(n_bytes)
    except OSError as error:
        fault = str(error)
    leader = communicator.topology.leader(communicator.rank)
    pid, number, _ = _all_well(communicator, (os.getpid(), fd, fault))[leader]
    try:
        if pages is None and create is not None:
            pages = window.attach(pid, number, n_bytes)
    except OSError as error:
        fault = str(error)
    _all_well(communicator, (0, 0, fault))
    if fd >= 0:
        os.close(fd)
    return pages


def _all_well(communicator: Communicator, own: tuple[int, int, str]) -> list[tuple[int, int, str]]:
    """Every rank's triple. Raises CommError, on every rank, where the last of one is a fault."""
    found = communicator.allgather_objects(own)
    fault = next((text for _, _, text in found if text), "")
    if fault:
        raise CommError(f"a parameter server's ranks cannot share memory: {fault}", everywhere=True)
    return found


NAME = "scaffe-tables"  # where the file needs one for a moment
CHUNK_BYTES = 256 << 10
"""How much of an array ``chunks`` takes at a time."""
FOLIO_BYTES = 2 << 20
"""Using a page may map those around it that the system's cache has in one folio, aligned to so much."""
RESIDENT_BYTES = 2 * FOLIO_BYTES
"""At most so much of an array that is gone through is in memory."""


class InMemory:
    """The tier of tables in memory; `InFile` is that of tables in a file. ``keeps_all``: whether all of the tables stay
    in memory."""

    keeps_all = True

    def release(self, addresses: np.ndarray, n_bytes: int) -> None:
        """Lets ``n_bytes`` at each of these addresses, int64, leave memory; the values stay.

        Addresses outside the tables are ignored.
        """

    def release_all(self) -> None:
        """Lets all tables leave memory; the values stay."""

    def chunks(self, array: np.ndarray) -> Iterator[slice]:
        """Slices in which to go through a flat array of the tables; each is released after its turn."""
        yield slice(0, array.size)

    def fault(self) -> str:
        """What a disk has failed to write, in one line; empty where nothing is known, and what was read is right.

        One rank of a node knows it.
        """
        return ""

    def look(self) -> None:
        """Raise CommError if there is a fault."""
        if found := self.fault():
            raise CommError(found)


class InFile(InMemory):
    """A file that all ranks of a node map. It has no name, so that it goes with the last process that maps it.

    A released page stays in the system's cache until that writes it and needs its memory: to release too early costs
    time, and never a value.

    Args:
        communicator: all ranks; each node has a file of its own. Collective.

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
        mapped_files.watch(self.memory, f"folder {folder}", communicator.rank if communicator.n_ranks > 1 else -1)

    def release(self, addresses: np.ndarray, n_bytes: int) -> None:
        for at in (addresses - self._start).tolist():
            if 0 <= at < len(self._pages):
                first = at // FOLIO_BYTES * FOLIO_BYTES
                last = min(-(-(at + n_bytes) // FOLIO_BYTES) * FOLIO_BYTES, len(self._pages))
                self._pages.madvise(mmap.MADV_DONTNEED, first, last - first)

    def fault(self) -> str:
        return "" if self._written is None else self._written.fault()

    def release_all(self) -> None:
        self._pages.madvise(mmap.MADV_DONTNEED)

    def chunks(self, array: np.ndarray) -> Iterator[slice]:
        start, n_elems = np.array([array.ctypes.data]), CHUNK_BYTES // array.itemsize
        for at in range(0, array.size, n_elems):
            chunk = slice(at, min(at + n_elems, array.size))
            yield chunk
            self.release(start + at * array.itemsize, (chunk.stop - at) * array.itemsize)


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
