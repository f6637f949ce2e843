"""Device memory that is the host's: aligned as CUDA's, poisoned, with guards that show who writes outside."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from bisect import bisect_right, insort
from typing import Any

import numpy as np

from tests.pretend.queue import CudaError, current_device, enqueue, host_waits

ALIGNMENT = 256
GUARD_BYTES = 256
GUARD, POISON = 0xFE, 0xFF  # poison is NaN in every floating type
PINNED_UNIT = 512
LEAST_SHARED_BYTES = 4096  # smaller allocations cannot be opened by another process


class Counters:
    """Bytes in use now and at the most."""

    used = peak = 0


counters = Counters()


class Memory:
    """One allocation. ``shared`` ones are files in memory, so that another process can open them (IPC)."""

    shared = False  # whether allocations are such files from now on

    def __init__(self, n_bytes: int) -> None:
        self.size, self.device_id = n_bytes, current_device()
        self.file: int | None = None
        whole = n_bytes + 2 * GUARD_BYTES + ALIGNMENT
        if Memory.shared and n_bytes >= LEAST_SHARED_BYTES:
            self.file = os.memfd_create("pretend")
            os.ftruncate(self.file, whole)
            self._memory = np.frombuffer(mmap.mmap(self.file, whole), np.uint8)
        else:
            self._memory = np.empty(whole, np.uint8)
        start = GUARD_BYTES + -(self._memory.ctypes.data + GUARD_BYTES) % ALIGNMENT
        self.offset = start
        self.bytes = self._memory[start:start + n_bytes]
        self.ptr = self._memory.ctypes.data + start
        self._guards = (self._memory[start - GUARD_BYTES:start], self._memory[start + n_bytes:][:GUARD_BYTES])
        self.bytes[:] = POISON
        for guard in self._guards:
            guard[:] = GUARD
        _alive[self.ptr] = self
        counters.used += n_bytes
        counters.peak = max(counters.peak, counters.used)

    def check(self) -> None:
        """Raise where somebody wrote outside."""
        for guard, where in zip(self._guards, ("before", "behind")):
            if not (guard == GUARD).all():
                guard[:] = GUARD
                raise AssertionError(f"a kernel wrote {where} an array of {self.size} bytes")

    def __del__(self) -> None:
        counters.used -= self.size
        if self.file is not None:
            os.close(self.file)


_alive: weakref.WeakValueDictionary[int, Memory] = weakref.WeakValueDictionary()


def allocation_at(address: int) -> Memory | None:
    """The allocation that an address lies in."""
    found = [m for m in _alive.values() if m.ptr <= address < m.ptr + max(m.size, 1)]
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

    def check(self) -> None:
        """Its owner knows its ends."""
        if isinstance(self.owner, Memory):
            self.owner.check()


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
        enqueue(lambda: ctypes.memmove(self.ptr, src.ptr, size))

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        """On a stream."""
        enqueue(lambda: ctypes.memmove(self.ptr, src.ptr, size), stream)

    def copy_from_host(self, mem: int, size: int) -> None:
        """The host waits."""
        host_waits("copy_from_host")
        ctypes.memmove(self.ptr, int(getattr(mem, "value", mem)), size)

    def copy_from_host_async(self, mem: int, size: int, stream: Any = None) -> None:
        """On a stream; from pageable memory the bytes are read now."""
        enqueue(host_reader(int(getattr(mem, "value", mem)), self.ptr, size), stream)

    def copy_to_host(self, mem: int, size: int) -> None:
        """The host waits."""
        host_waits("copy_to_host")
        ctypes.memmove(int(getattr(mem, "value", mem)), self.ptr, size)

    def copy_to_host_async(self, mem: int, size: int, stream: Any = None) -> None:
        """On a stream."""
        place = int(getattr(mem, "value", mem))
        enqueue(lambda: ctypes.memmove(place, self.ptr, size), stream)

    def memset(self, value: int, size: int) -> None:
        """On the current stream."""
        self.memset_async(value, size)

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        """On a stream."""
        enqueue(lambda: ctypes.memset(self.ptr, value, size), stream)


def alloc(size: int) -> MemoryPointer:
    """Fresh poisoned memory."""
    return MemoryPointer(Memory(size), 0)


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
    i = bisect_right(_pinned, (address, 1 << 62)) - 1
    return i >= 0 and _pinned[i][0] <= address < _pinned[i][1]


def host_reader(source: int, target: int, n_bytes: int) -> Any:
    """The work of a copy to the device: pageable memory is read now, as CUDA stages it, pinned memory when it runs."""
    if is_pinned(source):
        return lambda: ctypes.memmove(target, source, n_bytes)
    taken = ctypes.string_at(source, n_bytes)
    return lambda: ctypes.memmove(target, taken, n_bytes)


# -- between processes -----------------------------------------------------------------------------------------------
_opened: dict[int, tuple[mmap.mmap, int]] = {}


def handle_of(memory: Memory) -> bytes:
    """64 bytes by which another process opens this allocation."""
    if memory.file is None:
        raise CudaError("invalid argument: no handle of small memory, or install(ipc=True) was not given")
    text = f"{os.getpid()} {memory.file} {memory.offset} {memory.size}"
    return text.encode().ljust(64, b"\0")


def open_handle(handle: bytes) -> int:
    """The address of another process's allocation here."""
    owner, file, offset, n_bytes = map(int, handle.rstrip(b"\0").split())
    if owner == os.getpid():
        raise CudaError("invalid device context: a handle cannot be opened by the process that made it")
    descriptor = os.open(f"/proc/{owner}/fd/{file}", os.O_RDWR)
    try:
        mapped = mmap.mmap(descriptor, n_bytes + 2 * GUARD_BYTES + ALIGNMENT)
    finally:
        os.close(descriptor)
    ptr = ctypes.addressof(ctypes.c_char.from_buffer(mapped)) + offset
    _opened[ptr] = (mapped, n_bytes)
    return ptr


def close_handle(ptr: int) -> None:
    """Forget an opened allocation (its mapping ends with the last array on it)."""
    if ptr not in _opened:
        raise CudaError("invalid argument: not an opened handle")
    del _opened[ptr]
