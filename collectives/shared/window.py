"""Anonymous shared memory of a node's processes: one creates it, the others map it; it ends with the last of them."""

from __future__ import annotations

import mmap
import os
import weakref
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.transport.host_memory import HUGE_PAGE_BYTES

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


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


SLICES_KEPT = 4096


@dataclass(frozen=True)
class WindowSlice:
    """Where an array lies among the shared windows.

    Attributes:
        offset: bytes from the window's start to the array.
        addresses: int64, shape (ranks of the node,): where that byte of each rank's window is mapped in this process.
    """

    serial: int
    offset: int
    addresses: np.ndarray


class _Mapped:
    """A peer's memory as NumPy sees it; keeps `array`, this rank's own in the same window, and so the mapping."""

    def __init__(self, array: np.ndarray, address: int) -> None:
        self._array = array
        self.__array_interface__ = {"version": 3, "data": (address, True), "shape": (array.size,),
                                    "typestr": array.dtype.str}


class Windows:
    """The windows of one node's ranks, looked up by address so that any slice of a buffer can take part."""

    def __init__(self, node_comm: Intracomm, comm: Intracomm) -> None:
        """``comm``: the ranks of all nodes, which allocate together: where one has no memory the others hear of it."""
        self._comm, self._all = node_comm, comm
        self._bases: list[int] = []
        self._windows: dict[int, tuple[int, int, np.ndarray]] = {}
        self._slices: dict[tuple[int, int], WindowSlice] = {}
        self._last: tuple[Callable[[], Any], WindowSlice | None] = (lambda: None, None)
        self._serial = 0

    def allocate(self, n_bytes: int) -> np.ndarray:
        """Allocates a buffer in a new window; all ranks of all nodes call it.

        The window is unmapped when the last view of the array is gone, on each rank by itself.

        Args:
            n_bytes: length of each rank's buffer, the same on all ranks.

        Returns:
            This rank's buffer: uint8 zeros, shape (n_bytes,).

        Raises:
            CommError: on every rank, when lengths differ or memory cannot be shared.
        """
        lengths = self._comm.allgather(n_bytes)
        if len(set(lengths)) > 1:
            raise CommError(f"alloc: ranks of one node ask for different lengths: {lengths} bytes", everywhere=True)
        mapped = self._map(max(n_bytes, 1))
        own = mapped[self._comm.rank]
        addresses = np.array([np.frombuffer(pages, np.uint8).ctypes.data for pages in mapped], np.int64)
        self._serial += 1
        base = int(addresses[self._comm.rank])
        self._windows[base] = (self._serial, n_bytes, addresses)
        self._bases = sorted(self._windows)
        others = [pages for rank, pages in enumerate(mapped) if rank != self._comm.rank]
        weakref.finalize(own, self._forget, base, others).atexit = False
        return np.frombuffer(own, np.uint8)[:n_bytes]

    def locate(self, array: np.ndarray) -> WindowSlice:
        """As `find`. Raises CommError where the array does not lie in a window."""
        found = self.find(array)
        if found is None:
            raise CommError(f"an array of {array.nbytes} bytes does not lie in a shared window")
        return found

    def find(self, array: np.ndarray) -> WindowSlice | None:
        """Looks an array up; None where it does not lie wholly inside one window, or is empty."""
        last, found = self._last  # a call looks twice, and is often repeated on the same array
        if last() is array:
            return found
        found, n_bytes = None, array.nbytes
        address = array.__array_interface__["data"][0]  # half of what array.ctypes.data costs
        bases = self._bases  # another thread may unmap another window meanwhile
        index = bisect_right(bases, address) - 1
        window = self._windows.get(bases[index]) if index >= 0 and n_bytes else None
        if window is not None and address + n_bytes <= bases[index] + window[1]:
            known = (window[0], address - bases[index])
            found = self._slices.get(known)
            if found is None:
                if len(self._slices) >= SLICES_KEPT:
                    self._slices = {}
                self._slices[known] = found = WindowSlice(*known, window[2] + known[1])
        self._last = weakref.ref(array), found
        return found

    def on_rank(self, array: np.ndarray, rank: int) -> np.ndarray:
        """Maps the same slice of another rank's window.

        Args:
            array: this rank's, in a window; the result keeps the window mapped.

        Returns:
            That rank's memory, read-only, same shape and dtype.

        Raises:
            CommError: where the array does not lie in a window.
        """
        return np.asarray(_Mapped(array, int(self.locate(array).addresses[rank])))

    def _forget(self, base: int, others: list[mmap.mmap]) -> None:
        """Runs in the thread that drops the last view, while another may look up or allocate.

        ``_bases`` keeps the address until the next window is made: no other window can lie around it before.
        """
        serial, _, _ = self._windows.pop(base)
        self._slices = {known: found for known, found in self._slices.copy().items() if known[0] != serial}
        others.clear()

    def _map(self, n_bytes: int) -> list[mmap.mmap]:
        """Every rank's pages, in rank order; each rank creates its own and opens the others' through /proc."""
        n_bytes = -(-n_bytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES if n_bytes >= HUGE_PAGE_BYTES else n_bytes
        fd, own, fault = _create(n_bytes)
        fault = fault and f"rank {self._all.rank} has {fault}"
        handles = self._comm.allgather((os.getpid(), fd, fault))
        fault = next((text for _, _, text in handles if text), "")
        mapped: list[mmap.mmap] = []
        for rank, (pid, peer_fd, _) in enumerate([] if fault else handles):
            try:
                pages = own if rank == self._comm.rank else None
                mapped.append(pages or attach(pid, peer_fd, n_bytes, populate=True))
            except OSError as error:
                fault = f"rank {self._all.rank} cannot map the memory of rank {rank} of its node: {error}"
        faults = [text for text in self._all.allgather(fault) if text]
        if fd >= 0:
            os.close(fd)
        if faults:
            raise CommError(f"alloc: {faults[0]}", everywhere=True)
        return mapped


def _create(n_bytes: int) -> tuple[int, mmap.mmap | None, str]:
    """This rank's memory: descriptor, pages and no fault; or -1, None and what is wrong.

    Its owner touches it first, so that the pages lie near the owner's core.
    """
    try:
        fd, pages = create(n_bytes)
    except OSError as error:
        return -1, None, f"no shared memory of {n_bytes} bytes: {error}"
    np.frombuffer(pages, np.uint8)[:: mmap.PAGESIZE] = 0
    return fd, pages, ""
