"""The helper thread that carries non-blocking collectives forward while the caller computes."""

from __future__ import annotations

import atexit
import queue
import time
from collections.abc import Callable

from scaffe.collectives.request import Request
from scaffe.threads import Thread

Task = Callable[[], object]
"""What it returns, if anything, is the point at which the result is there (see Request.finish)."""

LAST_CALL_SECONDS = 1.0
"""How long the end of the program waits for what is under way."""


class ProgressThread:
    """Runs submitted tasks one after another, in the order of submission (which must be the same on every rank)."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Request, Task] | None] = queue.SimpleQueue()
        self._thread: Thread | None = None

    def submit(self, label: str, task: Task, waiting_for: Callable[[], str] = lambda: "") -> Request:
        """Queues a task.

        Args:
            label: names it in errors.
            task: what it raises is raised again by the request's `wait` and `test`.
            waiting_for: says which peer it waits for just now.
        """
        if self._thread is None:
            self._thread = Thread(self._run, "collectives-progress")
            self._thread.start()
            atexit.register(self._leave)
        request = Request(label, waiting_for)
        self._tasks.put((request, task))
        return request

    def stop(self) -> None:
        """Ends the thread after the tasks queued so far."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
            self._thread = None
            atexit.unregister(self._leave)

    def _leave(self) -> None:
        """Lets callbacks return before the interpreter ends, as one in C++ (PyTorch's futures) aborts it otherwise."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(LAST_CALL_SECONDS)

    def _run(self) -> None:
        while (item := self._tasks.get()) is not None:
            request, task = item
            request.started = time.perf_counter()
            try:
                point = task()
            except Exception as error:
                request.finish(error)
            else:
                request.finish(point=point)
