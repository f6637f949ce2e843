"""Device memory that is the host's, as CuPy and CUDA show it: allocations, pointers, pinned memory, IPC handles."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from bisect import bisect_right, insort
from typing import Any

import numpy as np

from tests.pretend import pool
from tests.pretend.contexts import current_device, touch
from tests.pretend.pool import ALIGNMENT, GUARD_BYTES, POISON, Block, Pool
from tests.pretend.queue import CudaError, current_stream, enqueue, host_waits
from tests.pretend.registry import Registry

PINNED_UNIT = 512


class Counters:
    """Bytes in use now and at the most."""

    used = peak = 0


counters = Counters()


class Memory:
    """One allocation: a block of its own, from ``cudaMalloc``, or one of a pool's, to which it goes back."""

    def __init__(self, n_bytes: int, pool: Pool | None = None) -> None:
        self.size, self._give_back = n_bytes, _nothing
        if pool is None:
            self.block = Block(n_bytes)
        else:
            self.block, self._give_back = pool.take(n_bytes)
        self.device_id, self.ptr, self.bytes = self.block.device_id, self.block.ptr, self.block.bytes
        _alive[self.ptr] = self
        counters.used += n_bytes
        counters.peak = max(counters.peak, counters.used)

    def __del__(self) -> None:
        if hasattr(self, "block") and counters is not None:  # as at the interpreter's end
            counters.used -= self.size
            self._give_back()


def _nothing() -> None:
    pass


_alive: Registry[Memory] = Registry()


def allocation_at(address: int) -> Memory | None:
    """The allocation that an address lies in."""
    found = [m for m in _alive.alive() if m.ptr <= address < m.ptr + max(m.size, 1)]
    return found[0] if found else None


class UnownedMemory:
    """Memory that something else owns."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self.owner = ptr, size, owner
        if device_id < 0 and ptr == 0:
            raise RuntimeError("UnownedMemory requires explicit device ID for a null pointer.")
        found = allocation_at(ptr) if device_id < 0 else None
        self.device_id = found.device_id if found else current_device() if device_id < 0 else device_id
        self.bytes = np.frombuffer((ctypes.c_uint8 * size).from_address(ptr) if size else b"", np.uint8)
        self.block = owner.block if isinstance(owner, Memory) else None


class MemoryPointer:
    """A place in an allocation."""

    def __init__(self, mem: Memory | UnownedMemory, offset: int) -> None:
        self.mem, self.offset = mem, offset

    @property
    def ptr(self) -> int:
        """The address."""
        return self.mem.ptr + self.offset

    @property
    def device_id(self) -> int:
        """Whose memory it is."""
        return self.mem.device_id

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, n_bytes: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.offset + n_bytes)

    def copy_from_device(self, src: MemoryPointer, size: int) -> None:
        """On the current stream."""
        self.copy_from_device_async(src, size)

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        """On a stream."""
        enqueue(_move(self.ptr, src.ptr, size), stream)

    def copy_from_host(self, mem: int, size: int) -> None:
        """The host waits."""
        host_waits("copy_from_host")
        ctypes.memmove(self.ptr, int(getattr(mem, "value", mem)), size)

    def copy_from_host_async(self, mem: int, size: int, stream: Any = None) -> None:
        """On a stream; from pageable memory the bytes are read now."""
        enqueue(host_reader(int(getattr(mem, "value", mem)), self.ptr, size, stream), stream)

    def copy_to_host(self, mem: int, size: int) -> None:
        """The host waits."""
        host_waits("copy_to_host")
        ctypes.memmove(int(getattr(mem, "value", mem)), self.ptr, size)

    def copy_to_host_async(self, mem: int, size: int, stream: Any = None) -> None:
        """On a stream."""
        enqueue(_move(int(getattr(mem, "value", mem)), self.ptr, size), stream)

    def memset(self, value: int, size: int) -> None:
        """On the current stream."""
        self.memset_async(value, size)

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        """On a stream."""
        place = self.ptr
        enqueue(lambda: ctypes.memset(place, value, size), stream)


def _move(target: int, source: int, n_bytes: int) -> Any:
    """The work of a copy: of addresses, which keep nothing alive."""
    return lambda: ctypes.memmove(target, source, n_bytes)


def alloc(size: int) -> MemoryPointer:
    """Poisoned memory of this thread's pool."""
    return (pool.allocator() or malloc)(size)


def malloc(size: int, source: Pool | None = None) -> MemoryPointer:
    """Poisoned memory of a pool, the default one unless given."""
    return MemoryPointer(Memory(size, source or pool.Default.pool), 0)


# -- pinned host memory ----------------------------------------------------------------------------------------------
_pinned: list[tuple[int, int]] = []  # (first address, end), sorted


class PinnedMemoryPointer(np.ndarray):
    """Page-locked bytes: its copies read and write it when they run, not when they are asked for.

    CuPy's has the buffer protocol, an address and whole units of 512 bytes; so has this, with more besides.
    """

    @property
    def ptr(self) -> int:
        """The address."""
        return self.ctypes.data


def alloc_pinned_memory(size: int) -> PinnedMemoryPointer:
    """At least that many bytes, poisoned."""
    memory = np.full(-(-max(size, 1) // PINNED_UNIT) * PINNED_UNIT, POISON, np.uint8).view(PinnedMemoryPointer)
    span = (memory.ptr, memory.ptr + memory.nbytes)
    insort(_pinned, span)
    weakref.finalize(memory.base, _pinned.remove, span)
    return memory


def is_pinned(address: int) -> bool:
    """Whether host memory is page-locked."""
    spans = list(_pinned)  # other threads add to it and take from it
    i = bisect_right(spans, (address, 1 << 62)) - 1
    return i >= 0 and spans[i][0] <= address < spans[i][1]


def host_reader(source: int, target: int, n_bytes: int, stream: Any = None) -> Any:
    """The work of a copy to the device: pageable memory is read now, as CUDA stages it, pinned memory when it runs.

    A stream (default: the current one) that is being captured refuses pageable memory: a graph would keep its address,
    and what lies there later would be copied at every launch.
    """
    if is_pinned(source):
        return _move(target, source, n_bytes)
    (stream or current_stream()).refuse_in_capture("a copy from pageable host memory")
    taken = ctypes.string_at(source, n_bytes)
    return lambda: ctypes.memmove(target, taken, n_bytes)


# -- between processes -----------------------------------------------------------------------------------------------
_opened: dict[int, mmap.mmap] = {}


def handle_of(memory: Memory) -> bytes:
    """64 bytes by which another process opens this allocation."""
    touch()
    if memory.block.file is None:
        raise CudaError("invalid argument: no handle of small memory, or install(ipc=True) was not given")
    text = f"{os.getpid()} {memory.block.file} {memory.block.offset} {memory.size}"
    return text.encode().ljust(64, b"\0")


def open_handle(handle: bytes) -> int:
    """The address of another process's allocation here."""
    touch()
    ptr, mapped = mapped_handle(handle, mmap.MAP_SHARED)
    _opened[ptr] = mapped
    return ptr


def mapped_handle(handle: bytes, flags: int) -> tuple[int, mmap.mmap]:
    """The same, and what keeps it mapped."""
    owner, file, offset, n_bytes = map(int, handle.rstrip(b"\0").split())
    if owner == os.getpid():
        raise CudaError("invalid device context: a handle cannot be opened by the process that made it")
    descriptor = os.open(f"/proc/{owner}/fd/{file}", os.O_RDWR)
    try:
        mapped = mmap.mmap(descriptor, n_bytes + 2 * GUARD_BYTES + ALIGNMENT, flags)
    finally:
        os.close(descriptor)
    return ctypes.addressof(ctypes.c_char.from_buffer(mapped)) + offset, mapped


def close_handle(ptr: int) -> None:
    """Forget an opened allocation (its mapping ends with the last array on it)."""
    if ptr not in _opened:
        raise CudaError("invalid argument: not an opened handle")
    del _opened[ptr]
