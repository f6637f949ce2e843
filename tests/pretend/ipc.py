"""Events between processes, as CUDA has them: a wait is for the last record that was made before the wait was queued.

The owner of an event shares three numbers: how often it was recorded, which record has come to pass, and which one
another process waits for. Work that is deferred runs for another process only when that process waits for it.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable

from tests.pretend.queue import CudaError, Event, Node, Work, lock

RECORDED, PASSED, WANTED = range(3)
NAP_SECONDS = 1e-3


class SharedEvent:
    """The owner's side of an event that other processes may open."""

    def __init__(self) -> None:
        self.file = os.memfd_create("pretend-event")
        os.ftruncate(self.file, mmap.PAGESIZE)
        self.numbers = memoryview(mmap.mmap(self.file, mmap.PAGESIZE)).cast("q")
        self.node: Node | None = None
        _serve(self)

    def recorded(self) -> Work:
        """One more record is queued; what to do when the stream comes to it."""
        self.numbers[RECORDED] += 1
        number = self.numbers[RECORDED]

        def passed() -> None:
            self.numbers[PASSED] = number
        return passed

    def serve(self) -> None:
        """Run what another process waits for."""
        node = self.node
        if node is not None and self.numbers[WANTED] > self.numbers[PASSED]:
            node.run()


class OpenedEvent(Event):
    """Another process's event."""

    def __init__(self, owner: int, file: int) -> None:
        super().__init__(disable_timing=True, interprocess=True)
        descriptor = os.open(f"/proc/{owner}/fd/{file}", os.O_RDWR)
        try:
            self._numbers = memoryview(mmap.mmap(descriptor, mmap.PAGESIZE)).cast("q")
        finally:
            os.close(descriptor)

    def gate(self) -> Callable[[], bool]:
        """Open when the record that is the last one now has come to pass."""
        number = self._numbers[RECORDED]

        def is_open() -> bool:
            if self._numbers[WANTED] < number:
                self._numbers[WANTED] = number
            return self._numbers[PASSED] >= number
        return is_open


def event_handle(event: Event) -> bytes:
    """64 bytes by which another process opens this event."""
    if event.shared is None:
        event.shared = SharedEvent()
    return f"{os.getpid()} {event.shared.file}".encode().ljust(64, b"\0")


def open_event(handle: bytes) -> OpenedEvent:
    """The event here; it lives as long as the process."""
    owner, file = map(int, handle.rstrip(b"\0").split())
    if owner == os.getpid():
        raise CudaError("invalid device context: a handle cannot be opened by the process that made it")
    _opened.append(OpenedEvent(owner, file))
    return _opened[-1]


def _serve(event: SharedEvent) -> None:
    with lock:
        _served.append(event)
        is_first = len(_served) == 1
    if is_first:
        threading.Thread(target=_loop, name="pretend-device", daemon=True).start()


def _loop() -> None:
    while True:
        for event in list(_served):
            event.serve()
        time.sleep(NAP_SECONDS)


_served: list[SharedEvent] = []
_opened: list[OpenedEvent] = []
