"""Carries messages between the parts of all ranks, in a thread of its own; with one rank, in the caller's."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.failure import report_and_abort
from scaffe.collectives.runtime.fault_tolerant_messages import FaultTolerantMessages
from scaffe.collectives.server.vectors import messages as m
from scaffe.collectives.server.vectors.host import Post
from scaffe.threads import Thread

SHARE_OF_TIME = 1 / 16
SHORTEST_SECONDS, LONGEST_SECONDS, LOOK_SECONDS = 50e-6, 2e-3, 0.05
Handle = Callable[[int, m.Message, np.ndarray | None], None]


class Service:
    """One rank's end of the messages.

    Args:
        world: all ranks; nobody else uses its messages.
        fault_tolerant: messages that work after a loss, where the ranks that are left continue; otherwise None.

    Attributes:
        changed: held while the parts act.
        seconds: processor time of the thread so far.
    """

    def __init__(self, world: Communicator, dtype: np.dtype,
                 fault_tolerant: FaultTolerantMessages | None = None) -> None:
        self._world, self._lost = world, set[int]()
        messages = (fault_tolerant or world).messages if world.n_ranks > 1 else None
        self.post = Post(messages, world.rank, dtype, fault_tolerant)
        self.seconds = 0.0
        self._parts: dict[str, Handle] = {}
        self._tick: Callable[[], None] = lambda: None
        self._lose: Callable[[int], None] = lambda rank: None
        self._todo: deque[Callable[[], None]] = deque()
        self.changed, self._wake = threading.Condition(), threading.Event()
        self._fault: BaseException | None = None
        self._thread: Thread | None = None
        self._is_ending = False

    def start(self, parts: Mapping[str, Handle], tick: Callable[[], None],
              lose: Callable[[int], None] = lambda rank: None) -> None:
        """Begin to carry messages.

        Args:
            parts: who acts on the messages that are for a part of this rank.
            tick: called after every look for messages.
            lose: called once for each rank that is lost.
        """
        self._parts, self._tick, self._lose = dict(parts), tick, lose
        if self._world.n_ranks > 1:
            self._thread = Thread(self._work, "messages")
            self._thread.start()

    def run(self, action: Callable[[], None]) -> None:
        self._todo.append(action)
        self._wake.set()

    def wait_for(self, condition: Callable[[], bool], what: str, timeout: float | None = None) -> None:
        """Return when a condition on the parts holds. Raises CommError if the thread has failed, or the time has
        passed.

        Args:
            timeout: seconds; None for the communicator's patience.
        """
        started, limit = time.monotonic(), self._world.patience if timeout is None else timeout
        if self._thread is None:
            while not condition():
                if not self._look():
                    raise CommError(f"nothing is under way, and {what} is waited for")
            return
        with self.changed:
            while not condition():
                self.changed.wait(LOOK_SECONDS)
                if self._fault is not None:
                    self._thread.join()  # it says why and ends the job
                    raise CommError(f"rank {self._world.rank}'s messages have failed: {self._fault}") from self._fault
                if time.monotonic() - started > limit:
                    raise CommError(f"rank {self._world.rank} waited {limit:g} s for {what}")

    def end(self) -> None:
        """Stop once everything has left. All ranks have agreed that nothing more comes."""
        self._is_ending = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> bool:
        """Act on what has come, once. Returns whether anything had."""
        found = False
        while self._todo:
            self._todo.popleft()()
            found = True
        for mail in self.post.receive():
            self._parts[mail.message.to](mail.source, mail.message, mail.payload)
            found = True
        for rank in set(self.post.lost) - self._lost:
            self._lost.add(rank)
            self._lose(rank)
        self._tick()
        return found

    def _work(self) -> None:
        last = time.monotonic()
        try:
            while not self._is_ending or self.post.is_busy or self._todo:
                self._wake.clear()
                with self.changed:
                    found = self._look()
                    if found:
                        self.changed.notify_all()
                now = time.monotonic()
                last = now if found else last
                self._wake.wait(min(max((now - last) * SHARE_OF_TIME, SHORTEST_SECONDS), LONGEST_SECONDS))
            self.seconds = time.thread_time()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._fault = error
        report_and_abort(self._world, error)


def own_messages(world: Communicator) -> Any:
    """A second communicator of all ranks, so that its messages are for this alone."""
    return world.split(0) or world
