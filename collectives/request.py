"""What a non-blocking collective gives back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from scaffe.collectives.errors import CommError


class Request:
    """A collective under way. The array belongs to it until `wait` returns or `test` says True.

    On a device, `test` and `wait` speak of the host's part: the messages are done and the rest is queued. What the
    caller queues after `wait` on the stream given there (default: the current one) sees the result.

    `started`, `ended`: when the collective itself ran, in seconds of time.perf_counter; 0 while it has not.
    """

    def __init__(self, label: str, waiting_for: Callable[[], str] = lambda: "") -> None:
        """`label` names the collective in errors; `waiting_for()` says which peer it waits for just now."""
        self._label = label
        self._waiting_for = waiting_for
        self._done = threading.Event()
        self.started = self.ended = 0.0
        self._error: BaseException | None = None
        self._point: Any = None

    @classmethod
    def completed(cls, label: str, point: Any = None) -> Request:
        """A request of a collective that is complete already."""
        request = cls(label)
        request.finish(point=point)
        return request

    def finish(self, error: BaseException | None = None, point: Any = None) -> None:
        """Mark as done, or as failed with `error`, which `wait` and `test` then raise.

        point: where the result is there in a device's order (a `device.Point`); None where it is there at once.
        """
        self._error, self._point = error, point
        self.ended = time.perf_counter()
        self._done.set()

    def test(self) -> bool:
        """True when the collective is complete on this rank. Raises what the collective raised."""
        if self._done.is_set() and self._error is not None:
            raise self._error
        return self._done.is_set()

    def wait(self, timeout: float | None = None, stream: Any = None) -> None:
        """Block until complete. Raises CommError after `timeout` seconds, naming this rank and the peer waited for.

        stream: what follows the result on a device, which the host does not wait for; host memory needs none.
        """
        if not self._done.wait(timeout):
            raise CommError(f"{self._label}: not complete after {timeout:g} s{self._waiting_for()}")
        self.test()
        if self._point is not None:
            self._point.hold(stream)
