"""Anonymous shared memory of a node's processes: one creates it, the others map it. No killed process leaves any."""

from __future__ import annotations

import mmap
import os

from scaffe.collectives.transport.memory import HUGE_PAGE_BYTES


def create(n_bytes: int) -> tuple[int, mmap.mmap]:
    """Create zeroed memory and map it. No page is touched: each one is placed near the core that first writes to it.

    Args:
        n_bytes: its length, at least 1.

    Returns:
        The descriptor that ``attach`` takes in other processes, to be closed once they have mapped it; and the pages.

    Raises:
        OSError: there is no such memory here, or none is left.
    """
    if not hasattr(os, "memfd_create"):
        raise OSError("this system has no memfd_create")
    fd = os.memfd_create("scaffe")
    try:
        os.ftruncate(fd, n_bytes)
        return fd, _on_huge_pages(mmap.mmap(fd, n_bytes))
    except OSError:
        os.close(fd)
        raise


def attach(pid: int, fd: int, n_bytes: int, populate: bool = False) -> mmap.mmap:
    """Map memory that another process of this node has created, through /proc.

    Args:
        pid: the process.
        fd: its descriptor.
        n_bytes: as in ``create``.
        populate: map all pages at once, so that using them does not fault.

    Raises:
        OSError: the process is gone or not ours, or the memory cannot be mapped.
    """
    own = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)
    try:
        flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if populate else 0)
        return _on_huge_pages(mmap.mmap(own, n_bytes, flags=flags))
    finally:
        os.close(own)


def _on_huge_pages(pages: mmap.mmap) -> mmap.mmap:
    if len(pages) >= HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages
