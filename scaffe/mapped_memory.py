"""Memory by the system's own calls: mapping, page advice, huge pages, and what the C library keeps of freed memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np

from scaffe.errors import UserError

PAGE_BYTES = mmap.PAGESIZE
HUGE_BYTES = 1 << 21
MANY_HUGE = 4  # arrays of so many huge pages are made of them: fewer faults, at most a huge page lost each
PROT_NONE = 0
FAILED = ctypes.c_void_p(-1).value
NO_RESERVE = 0x4000  # MAP_NORESERVE: addresses do not count as memory before pages are written
FIXED = 0x10  # MAP_FIXED
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE

_libc = ctypes.CDLL(None, use_errno=True)
_madvise, _mmap, _munmap = _libc.madvise, _libc.mmap, _libc.munmap
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
_mmap.restype = ctypes.c_void_p


def page_of(n_bytes: int) -> int:
    """The bytes of a page in arrays of this length."""
    return HUGE_BYTES if n_bytes >= MANY_HUGE * HUGE_BYTES else PAGE_BYTES


def rounded(n_bytes: int) -> int:
    """The bytes that an array takes in whole pages."""
    page = page_of(n_bytes)
    return -(-n_bytes // page) * page


def anonymous(n_bytes: int) -> np.ndarray:
    """Memory, uint8, (n_bytes,), that begins with a huge page; its pages are taken by the first write. Raises UserError
    if no addresses are left."""
    return np.asarray(_Mapped(n_bytes, mmap.PROT_READ | mmap.PROT_WRITE))


def reserved(n_bytes: int) -> np.ndarray:
    """Addresses without memory, uint8, (n_bytes,), that begin with a huge page. Raises UserError if none are left."""
    return np.asarray(_Mapped(n_bytes, PROT_NONE))


class _Mapped:
    """Addresses that are unmapped with the last array that uses them."""

    def __init__(self, n_bytes: int, protection: int) -> None:
        length = n_bytes + HUGE_BYTES
        start = _mmap(None, length, protection, PRIVATE, -1, 0)
        if start == FAILED:
            raise _refused(length)
        weakref.finalize(self, _munmap, start, length).atexit = False
        self.__array_interface__ = {"version": 3, "data": (start + -start % HUGE_BYTES, False), "shape": (n_bytes,),
                                    "typestr": "|u1"}


def in_pages(n_elems: int, dtype: np.dtype) -> np.ndarray:
    """Zeros, (n_elems,), with whole pages to themselves."""
    return anonymous(rounded(n_elems * dtype.itemsize)).view(dtype)[:n_elems]


def inner(memory: np.ndarray, page: int = 0) -> np.ndarray:
    """The whole pages within memory, uint8, of ``page`` bytes each; for 0, of long memory the huge pages. Empty if
    there is none."""
    page = page or (HUGE_BYTES if memory.nbytes >= MANY_HUGE**2 * HUGE_BYTES else PAGE_BYTES)
    first = -address(memory) % page
    return memory[first:first + max(0, memory.nbytes - first) // page * page]


def forget(memory: np.ndarray) -> None:
    """Give the whole pages within an array back; their contents are lost. No effect on a device's arrays. Raises
    OSError."""
    if isinstance(memory, np.ndarray):
        pages = inner(memory.view(np.uint8))
        dismiss(address(pages), pages.nbytes)


def address(array: np.ndarray) -> int:
    """Where an array begins."""
    return int(array.ctypes.data)


def dismiss(start: int, n_bytes: int) -> None:
    """Give pages back. The contents of private ones are lost; a file's are in the file. Raises OSError."""
    if n_bytes and _madvise(start, n_bytes, mmap.MADV_DONTNEED):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def advise_huge(memory: np.ndarray) -> None:
    """Ask for huge pages if memory consists of whole ones, and else for none. No effect on systems without them."""
    start, n_bytes = address(memory), memory.nbytes
    is_huge = n_bytes > 0 and n_bytes % HUGE_BYTES == start % HUGE_BYTES == 0
    if n_bytes:
        _madvise(start, n_bytes, mmap.MADV_HUGEPAGE if is_huge else mmap.MADV_NOHUGEPAGE)


def make_private(memory: np.ndarray) -> None:
    """Map new private pages, zero, at the addresses of whole pages. Raises UserError if there are none."""
    _put(memory, PRIVATE, -1, 0)
    advise_huge(memory)


def make_file(memory: np.ndarray, file: int, offset: int) -> None:
    """Map a file's pages, by its descriptor, at the addresses of whole pages. Raises UserError if the system
    refuses."""
    _put(memory, mmap.MAP_SHARED, file, offset)


def _put(memory: np.ndarray, flags: int, file: int, offset: int) -> None:
    where, protection = address(memory), mmap.PROT_READ | mmap.PROT_WRITE
    if memory.nbytes and _mmap(where, memory.nbytes, protection, flags | FIXED, file, offset) != where:
        raise _refused(memory.nbytes)


def _refused(n_bytes: int) -> UserError:
    """What to raise if the system gives no addresses, with what is needed and the limit that there is."""
    why, (most, _) = os.strerror(ctypes.get_errno()).lower(), resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        n_used = 0  # where the system does not say
        with suppress(OSError, ValueError):
            n_used = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE_BYTES
        why = f"the limit is {most:,} (ulimit -v), and {n_used:,} are in use"
    return UserError(f"limited memory (-memory): {n_bytes:,} bytes of addresses more are needed: {why}")


OWN, MOST = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
USUAL_MOST = 65530
EVERY = 256  # calls: between two counts, which take some ten milliseconds where there are many


class Maps:
    """Says whether a process has so many mappings that no more should be made: half of those allowed. Beyond all of
    them, no memory can be allocated."""

    def __init__(self) -> None:
        self._most, self._n_calls, self._are_many = USUAL_MOST // 2, 0, False
        with suppress(OSError, ValueError):  # no Linux
            self._most = int(MOST.read_text()) // 2

    def are_many(self) -> bool:
        """Whether there are so many, as last counted."""
        if self._n_calls % EVERY == 0:
            with suppress(OSError):
                self._are_many = OWN.read_bytes().count(b"\n") > self._most
        self._n_calls += 1
        return self._are_many


MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # mallopt's names
MOST_KEPT = 32 << 20  # that it accepts for the first


def return_freed_memory(limit: int = 0) -> None:
    """Have the C library give freed memory of a megabyte and more back to the system at once, from now on.

    By itself it keeps what it expects to be needed again: 115 MB of GoogLeNet's 557 in a limit of 242 MB. Of a limit in
    bytes it may keep a 64th: products that allocate in each call would else wait for pages (fc6's gradient in CaffeNet,
    in four blocks of rows, takes 62 instead of 77 ms so). No effect where the library has no such setting.
    """
    if hasattr(_libc, "mallopt"):
        for which in (MMAP_THRESHOLD, TRIM_THRESHOLD):
            _libc.mallopt(which, min(max(limit // 64, 1 << 20), MOST_KEPT))


def trim_heap() -> None:
    """Have the C library give back what lies free between allocations that are in use, where it can."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)
