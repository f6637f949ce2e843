"""Who sends a worker's messages: its own thread, or one beside it that waits for updates to leave the device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from scaffe.collectives.server.mail.messages import ToShard
from scaffe.threads import Thread

TICK_SECONDS = 0.2

Messages = Sequence[tuple[int, ToShard]]
"""(shard, message) pairs, in the order in which they are sent."""


class Outbox:
    """Sends at once. Enough where updates are in host memory.

    Args:
        send: sends messages, and calls its second argument now and then while there is no room for them.
    """

    def __init__(self, send: Callable[[Messages, Callable[[], None]], None]) -> None:
        self._send = send

    def put(self, messages: Messages, waiting: Callable[[], None], fetch: Callable[[], None] | None = None) -> None:
        """Send messages.

        Args:
            messages: what to send.
            waiting: called now and then while there is no room.
            fetch: called first, and may wait.
        """
        if fetch is not None:
            fetch()
        self._send(messages, waiting)

    def flush(self, waiting: Callable[[], None]) -> None:
        """Wait until everything is sent; ``waiting`` is called now and then meanwhile."""

    def stop(self) -> None:
        """There is no thread to end."""


class Pusher(Outbox):
    """Sends in a thread of its own, in the order given, so that ``fetch`` may wait while the worker computes.

    Args:
        send: see Outbox.
        name: of the thread.
        fail: called in the thread with the error that ended it.
    """

    def __init__(self, send: Callable[[Messages, Callable[[], None]], None], name: str,
                 fail: Callable[[BaseException], None]) -> None:
        super().__init__(send)
        self._fail, self._jobs = fail, SimpleQueue[Callable[[], bool]]()
        self._thread = Thread(self._run, name)
        self._thread.start()

    def put(self, messages: Messages, waiting: Callable[[], None], fetch: Callable[[], None] | None = None) -> None:
        """See Outbox; returns at once."""
        def job() -> bool:
            super(Pusher, self).put(messages, lambda: None, fetch)
            return True
        self._jobs.put(job)

    def flush(self, waiting: Callable[[], None]) -> None:
        """See Outbox."""
        is_done = threading.Event()

        def job() -> bool:
            is_done.set()
            return True
        self._jobs.put(job)
        while not is_done.wait(TICK_SECONDS):
            waiting()

    def stop(self) -> None:
        """End the thread when it has sent everything."""
        self._jobs.put(lambda: False)
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._jobs.get()():
                pass
        except BaseException as error:
            self._fail(error)
