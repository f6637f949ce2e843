"""CuPy's memory pool: a freed block goes to the next array of its length and stream, while other streams may still be
at work on it. CUDA's own memory, from ``runtime.malloc``, comes from no pool.

What an array leaves behind is poisoned where its stream comes to it. Blocks stay in memory until the test ends: a
kernel that reaches one too late finds poison or another array's values, as on a device, and does not crash.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.pretend.contexts import touch
from tests.pretend.queue import current_stream, lock, stream_at

ALIGNMENT = 256
GUARD_BYTES = 256
GUARD, POISON = 0xFE, 0xFF  # poison is NaN in every floating type
LEAST_SHARED_BYTES = 4096  # smaller allocations cannot be opened by another process
Key = tuple[int, int, int, bool]  # device, stream, length, whether other processes can open it


class Settings:
    """Whether new blocks are files in memory, so that another process can open them (IPC)."""

    shared = False


class Block:
    """A stretch of memory between two guards, which show who writes outside. Work that is queued holds its bytes."""

    def __init__(self, n_bytes: int) -> None:
        self.size, self.device_id = n_bytes, touch()
        self.file: int | None = None
        whole = n_bytes + 2 * GUARD_BYTES + ALIGNMENT
        if Settings.shared and n_bytes >= LEAST_SHARED_BYTES:
            self.file = os.memfd_create("pretend")
            os.ftruncate(self.file, whole)
            memory = np.frombuffer(mmap.mmap(self.file, whole), np.uint8)
        else:
            memory = np.empty(whole, np.uint8)
        self.offset = start = GUARD_BYTES + -(memory.ctypes.data + GUARD_BYTES) % ALIGNMENT
        self.bytes = memory[start:start + n_bytes]
        self.ptr = memory.ctypes.data + start
        self._guards = (memory[start - GUARD_BYTES:start], memory[start + n_bytes:][:GUARD_BYTES])
        self.poison()
        for guard in self._guards:
            guard[:] = GUARD

    def poison(self) -> None:
        """Whatever was there is gone."""
        self.bytes[:] = POISON

    def check(self) -> None:
        """Raise where somebody wrote outside."""
        for guard, where in zip(self._guards, ("before", "behind")):
            if not (guard == GUARD).all():
                guard[:] = GUARD
                raise AssertionError(f"a kernel wrote {where} an array of {self.size} bytes")

    def __del__(self) -> None:
        if self.file is not None:
            os.close(self.file)


class Pool:
    """``cupy.cuda.MemoryPool``. ``is_private``: it serves what a graph is recorded with."""

    def __init__(self, is_private: bool = True) -> None:
        self._is_private = is_private
        self._free: defaultdict[Key, list[Block]] = defaultdict(list)

    def take(self, n_bytes: int) -> tuple[Block, Callable[[], None]]:
        """A block, and what gives it back."""
        stream = current_stream()
        key = (touch(), stream.ptr, n_bytes, Settings.shared)
        with lock:
            block = self._free[key].pop() if self._free[key] else Block(n_bytes)
        pool = weakref.ref(self)

        def give_back() -> None:
            with lock:
                found = pool()
                poison_later(block, key[1], found is not None and not found._is_private)
                (_left.append if found is None else found._free[key].append)(block)
        return block, give_back

    def free_all_blocks(self, stream: Any = None) -> None:
        """Back to CUDA, which waits for the device."""
        with lock:
            free, self._free = self._free, defaultdict(list)
            for blocks in free.values():
                _left.extend(blocks)

    def n_free_blocks(self) -> int:
        """That wait for an array."""
        return sum(map(len, self._free.values()))

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """There is none."""


_left: list[Block] = []  # of pools that are gone
_local = threading.local()


class Default:
    """The pool of all arrays but those made under ``using_allocator``."""

    pool = Pool(is_private=False)


def forget(kind: type[Pool]) -> None:
    """Begin anew, as a process without memory, with a default pool of that kind."""
    _left.clear()
    Default.pool = kind(is_private=False)


def poison_later(block: Block, stream_ptr: int, skips_capture: bool) -> None:
    """When the stream that had the block has come so far; a graph does not poison what it did not take."""
    try:
        stream = stream_at(stream_ptr)
    except KeyError:  # the stream is gone, its work done
        block.poison()
        return
    if not (skips_capture and stream.is_capturing()):
        stream.add(block.poison, needs_context=False)


def allocator() -> Callable[[int], Any] | None:
    """This thread's, where there is one of its own."""
    return vars(_local).get("allocator")


@contextmanager
def using_allocator(wanted: Callable[[int], Any] | None = None):
    """As CuPy's: this thread's arrays come from another pool meanwhile."""
    before, _local.allocator = allocator(), wanted
    try:
        yield
    finally:
        _local.allocator = before
