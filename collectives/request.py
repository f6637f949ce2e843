"""Request: the handle that a non-blocking collective returns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from scaffe import forking
from scaffe.collectives.errors import CommError
from scaffe.collectives.runtime.freed_communicator import forked_child_line


class Request:
    """A collective under way. The array belongs to it until `wait` returns or `test` returns True.

    On a device, `test` and `wait` concern the host's part: the messages are done and the rest is queued on the device.
    What the caller queues after `wait` on the stream given there (default: the current one) sees the result.

    Attributes:
        started: when the collective itself began, in seconds of time.perf_counter; 0 while it has not.
        ended: when it was complete, likewise.
    """

    def __init__(self, label: str, waiting_for: Callable[[], str] = lambda: "") -> None:
        """Args:
            label: names the collective in errors.
            waiting_for: says which peer it waits for just now.
        """
        self._label = label
        self._waiting_for = waiting_for
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[Request], object]] = []
        self.started = self.ended = 0.0
        self._error: BaseException | None = None
        self._point: Any = None
        self._generation = forking.generation()

    @classmethod
    def completed(cls, label: str, point: Any = None) -> Request:
        """Makes a request of a collective that is complete already; arguments as in `finish`."""
        request = cls(label)
        request.finish(point=point)
        return request

    def finish(self, error: BaseException | None = None, point: Any = None) -> None:
        """Marks the collective as done or failed.

        Args:
            error: why it failed, which `wait` and `test` then raise; None where it did not.
            point: the `device.Point` from which on a device has the result; None where it is there at once.
        """
        self._error, self._point = error, point
        self.ended = time.perf_counter()
        with self._lock:
            self._done.set()
        for call in self._callbacks:
            call(self)

    def add_done_callback(self, call: Callable[[Request], object]) -> None:
        """Calls `call(request)` once the collective is complete: at once if it is, else in the helper thread.

        Until it returns the helper thread does nothing else; it must not raise.
        """
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(call)
                return
        call(self)

    def test(self) -> bool:
        """Whether the collective is complete on this rank. Raises what the collective raised, or CommError where it was
        under way at a fork, in the child."""
        if not self._done.is_set():
            if self._generation != forking.generation():
                raise CommError(forked_child_line())
            return False
        if self._error is not None:
            raise self._error
        return True

    def wait(self, timeout: float | None = None, stream: Any = None) -> None:
        """Blocks until the collective is complete.

        Args:
            timeout: seconds; None waits as long as it takes (the communicator's deadline ends the job).
            stream: on a device, the stream that follows the result (default: the current one); the host does not wait
                for the device.

        Raises:
            CommError: the time has passed; the line names this rank and the peer waited for. Also what the collective
                raised.
        """
        if not self.test() and not self._done.wait(timeout):
            raise CommError(f"{self._label}: not complete after {timeout:g} s{self._waiting_for()}")
        self.test()
        if self._point is not None:
            self._point.hold(stream)
