"""What a non-blocking collective gives back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .errors import CommError


class Request:
    """A collective under way. The array belongs to it until `wait` returns or `test` says True.

    `started`, `ended`: when the collective itself ran, in seconds of time.perf_counter; 0 while it has not.
    """

    def __init__(self, label: str, waiting_for: Callable[[], str] = lambda: "") -> None:
        """`label` names the collective in errors; `waiting_for()` says which peer it waits for just now."""
        self._label = label
        self._waiting_for = waiting_for
        self._done = threading.Event()
        self.started = self.ended = 0.0
        self._error: BaseException | None = None

    @classmethod
    def completed(cls, label: str) -> Request:
        """A request of a collective that is complete already."""
        request = cls(label)
        request.finish()
        return request

    def finish(self, error: BaseException | None = None) -> None:
        """Mark as done, or as failed with `error`, which `wait` and `test` then raise."""
        self._error = error
        self.ended = time.perf_counter()
        self._done.set()

    def test(self) -> bool:
        """True when the collective is complete on this rank. Raises what the collective raised."""
        if self._done.is_set() and self._error is not None:
            raise self._error
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> None:
        """Block until complete. Raises CommError after `timeout` seconds, naming this rank and the peer waited for."""
        if not self._done.wait(timeout):
            raise CommError(f"{self._label}: not complete after {timeout:g} s{self._waiting_for()}")
        self.test()
