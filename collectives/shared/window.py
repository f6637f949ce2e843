"""Buffers that all ranks of a node have mapped: anonymous shared memory that no killed rank can leave behind."""

from __future__ import annotations

import mmap
import os
import weakref
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.transport.memory import HUGE_PAGE_BYTES

PLACES_KEPT = 4096


@dataclass(frozen=True)
class Place:
    """Where an array lies: in window `serial` at byte `offset`; the address of that byte on each rank of the node."""

    serial: int
    offset: int
    addresses: np.ndarray


class _Mapped:
    """A peer's memory at an address of this process, for as long as this rank's `array` in the same window lives."""

    def __init__(self, array: np.ndarray, address: int) -> None:
        self._array = array
        self.__array_interface__ = {"version": 3, "data": (address, True), "shape": (array.size,),
                                    "typestr": array.dtype.str}


class Windows:
    """The windows of one node's ranks, found again by address so that any slice of a buffer can take part."""

    def __init__(self, node_comm) -> None:
        """`node_comm`: mpi4py communicator of the ranks that share memory."""
        self._comm = node_comm
        self._bases: list[int] = []
        self._windows: dict[int, tuple[int, int, np.ndarray]] = {}
        self._places: dict[tuple[int, int], Place] = {}
        self._last: tuple[Callable[[], Any], Place | None] = (lambda: None, None)
        self._serial = 0

    def allocate(self, n_bytes: int) -> np.ndarray:
        """A zeroed byte array in a new window of `n_bytes` on each rank; all ranks of the node call it.

        The window goes when the last view of the array does, on each rank by itself.
        Raises CommError on every rank when the ranks ask for different lengths or memory cannot be shared.
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

    def place(self, array: np.ndarray) -> Place:
        """Where `array` lies. Raises CommError when it is not wholly inside one window."""
        found = self.find(array)
        if found is None:
            raise CommError(f"an array of {array.nbytes} bytes does not lie in a shared window")
        return found

    def find(self, array: np.ndarray) -> Place | None:
        """Where `array` lies, or None when it is not wholly inside one window, or empty and so nowhere."""
        last, place = self._last  # a call asks twice, and is often made again for the same array
        if last() is array:
            return place
        place = self._find(array) if array.nbytes else None
        self._last = weakref.ref(array), place
        return place

    def _find(self, array: np.ndarray) -> Place | None:
        address = array.__array_interface__["data"][0]  # half of what array.ctypes.data costs
        bases = self._bases  # another thread may let go of another window meanwhile
        index = bisect_right(bases, address) - 1
        window = self._windows.get(bases[index]) if index >= 0 else None
        if window is None or address + array.nbytes > bases[index] + window[1]:
            return None
        serial, _, addresses = window
        known = (serial, address - bases[index])
        place = self._places.get(known)
        if place is None:
            if len(self._places) >= PLACES_KEPT:
                self._places = {}
            self._places[known] = place = Place(*known, addresses + known[1])
        return place

    def on_rank(self, array: np.ndarray, rank: int) -> np.ndarray:
        """What `array` is on rank `rank` of the node, read-only, as long as this rank's own window lives: the result
        keeps it alive. Raises CommError when the array is not wholly inside one window."""
        return np.asarray(_Mapped(array, int(self.place(array).addresses[rank])))

    def _forget(self, base: int, others: list[mmap.mmap]) -> None:
        serial, _, _ = self._windows.pop(base)
        self._places = {known: place for known, place in self._places.items() if known[0] != serial}
        self._bases = sorted(self._windows)
        others.clear()

    def _map(self, n_bytes: int) -> list[mmap.mmap]:
        """Every rank's pages, in rank order; each rank creates its own and opens the others' through /proc."""
        n_bytes = -(-n_bytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES if n_bytes >= HUGE_PAGE_BYTES else n_bytes
        fd, own, fault = _create(n_bytes)
        handles = self._comm.allgather((os.getpid(), fd, fault))
        fault = next((text for _, _, text in handles if text), "")
        mapped: list = []
        for rank, (pid, peer_fd, _) in enumerate([] if fault else handles):
            try:
                mapped.append(own if rank == self._comm.rank else _open(f"/proc/{pid}/fd/{peer_fd}", n_bytes))
            except OSError as error:
                fault = f"rank {self._comm.rank} of the node cannot map rank {rank}'s memory: {error}"
        faults = [text for text in self._comm.allgather(fault) if text]
        if fd >= 0:
            os.close(fd)
        if faults:
            raise CommError(f"alloc: {faults[0]}", everywhere=True)
        return mapped


def _create(n_bytes: int) -> tuple[int, mmap.mmap | None, str]:
    """A new anonymous file of `n_bytes`, mapped: descriptor, pages and no fault; or -1, None and what is wrong.

    Its owner touches it first, so that the pages lie near the owner's core.
    """
    try:
        fd = os.memfd_create("scaffe")
        os.ftruncate(fd, n_bytes)
        pages = mmap.mmap(fd, n_bytes)
    except (AttributeError, OSError) as error:
        return -1, None, f"no shared memory of {n_bytes} bytes: {error}"
    if n_bytes >= HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    np.frombuffer(pages, np.uint8)[:: mmap.PAGESIZE] = 0
    return fd, pages, ""


def _open(path: str, n_bytes: int) -> mmap.mmap:
    """Map a peer's file with all its pages present, so that the first collective does not fault."""
    fd = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(fd, n_bytes, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
    finally:
        os.close(fd)
