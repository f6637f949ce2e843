"""Memory that all ranks of one node map: the tables' values, the workers' updates, the mailboxes."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.transport.available import shortage
from scaffe.collectives.transport.memory import HUGE_PAGE_BYTES

ALIGNMENT = 64  # bytes: a cache line


def aligned(n_bytes: int) -> int:
    """``n_bytes`` rounded up to a multiple of a cache line."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def common(communicator: Communicator, n_bytes: int) -> np.ndarray:
    """Allocate zeroed memory that all ranks read and write. Collective: every rank passes the same ``n_bytes``.

    No page has been touched yet, so each page is placed on the NUMA node of the core that first writes to it. The
    memory is freed when the last rank drops its reference.

    Returns:
        uint8 (n_bytes,).

    Raises:
        CommError: on every rank, if the node has less memory left, or it cannot be mapped.
    """
    fault = shortage(n_bytes, f"a parameter server of {n_bytes} bytes")
    if communicator.n_ranks == 1 and not fault:
        return np.zeros(n_bytes, np.uint8)
    pages, fd = None, -1
    if communicator.rank == 0 and not fault:
        pages, fd, fault = _create(n_bytes)
    pid, number, fault = communicator.bcast_object((os.getpid(), fd, fault))
    if communicator.rank and not fault:
        pages, fault = _open(f"/proc/{pid}/fd/{number}", n_bytes)
    faults = [text for text in communicator.allgather_objects(fault) if text]
    if fd >= 0:
        os.close(fd)
    if faults or pages is None:
        raise CommError(f"a parameter server's ranks cannot share memory: {faults[0]}", everywhere=True)
    return np.frombuffer(pages, np.uint8)[:n_bytes]


def _create(n_bytes: int) -> tuple[mmap.mmap | None, int, str]:
    try:
        fd = os.memfd_create("scaffe-server")
        os.ftruncate(fd, n_bytes)
        return _mapped(fd, n_bytes), fd, ""
    except OSError as error:
        return None, -1, str(error)


def _open(path: str, n_bytes: int) -> tuple[mmap.mmap | None, str]:
    try:
        with Path(path).open("r+b") as file:
            return _mapped(file.fileno(), n_bytes), ""
    except OSError as error:
        return None, str(error)


def _mapped(fd: int, n_bytes: int) -> mmap.mmap:
    pages = mmap.mmap(fd, n_bytes)
    if n_bytes >= HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages
