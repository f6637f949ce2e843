"""CUDA's driver, by its C names: memory in pages, which really are at several addresses at once, and events that a
recording records at each launch."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from scaffe.layers.kernels import driver
from tests.pretend import compiler, memory, queue
from tests.pretend.contexts import current_device, touch
from tests.pretend.pool import POISON

PAGE_BYTES = 2 << 20  # as on a card
EXTERNAL, INVALID_VALUE = 1, 1


class Mapped:
    """Addresses that somebody may use, as an allocation is known."""

    block = None

    def __init__(self, ptr: int, size: int) -> None:
        self.ptr, self.size, self.device_id = ptr, size, current_device()


class Driver:
    """The library.

    Args:
        page_bytes: the shortest page; 0: a driver without pages.
        most_bytes: the device's memory; None: without end.
    """

    def __init__(self, page_bytes: int = PAGE_BYTES, most_bytes: int | None = None) -> None:
        self._library = ctypes.CDLL(compiler.library("driver.cpp"))
        for name, types in driver.ARGUMENTS.items():
            if name.startswith(("cuMem", "cuDevice")):
                getattr(self._library, name).argtypes = types
        self._library.pretend_settings.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
        self._library.pretend_settings(page_bytes, ctypes.c_size_t(-1).value if most_bytes is None else most_bytes)
        self._mapped: dict[int, Mapped] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def cuMemCreate(self, handle: Any, size: int, *rest: Any) -> int:
        """Memory counts, whether it is mapped or not."""
        touch()
        status: int = self._library.cuMemCreate(handle, size, *rest)
        self._count(0 if status else size)
        return status

    def cuMemSetAccess(self, ptr: int, size: int, *rest: Any) -> int:
        """From now on it can be used: by whoever expects something there."""
        status: int = self._library.cuMemSetAccess(ptr, size, *rest)
        if not status:
            self._mapped[ptr] = memory._alive[ptr] = Mapped(ptr, size)
            np.frombuffer((ctypes.c_uint8 * size).from_address(ptr), np.uint8)[:] = POISON
        return status

    def cuMemRelease(self, handle: int) -> int:
        """It counts no longer once it is mapped nowhere."""
        return self._freeing(self._library.cuMemRelease, handle)

    def cuMemUnmap(self, ptr: int, size: int) -> int:
        """As above."""
        self._mapped.pop(ptr, None)
        return self._freeing(self._library.cuMemUnmap, ptr, size)

    def cuEventRecordWithFlags(self, event: int, stream: int, flags: int) -> int:
        """In a recording, whose launches then record the event, and nowhere else."""
        on = queue.stream_at(stream)
        if flags != EXTERNAL or on.graph is None:
            return INVALID_VALUE
        on.graph.works.append(queue.event_at(event).passed)
        return 0

    def _freeing(self, function: Any, *arguments: int) -> int:
        before = self._library.pretend_used()
        status: int = function(*arguments)
        self._count(self._library.pretend_used() - before)
        return status

    def _count(self, n_bytes: int) -> None:
        memory.counters.used += n_bytes
        memory.counters.peak = max(memory.counters.peak, memory.counters.used)
