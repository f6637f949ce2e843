"""Messages that follow the device: each starts when a point of the communication stream is reached.

The host does not block for the device: a message queues behind its point, and every wait for any message starts those
whose points have been reached. Messages between two ranks keep their order, so that MPI matches them as plans say.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from scaffe.collectives.cuda.messages.start_queue import StartQueue, wait_until
from scaffe.collectives.cuda.streams import Streams


class StartQueues:
    """The start queues of one engine: per peer one for receives, one for copies to the host and one for sends."""

    def __init__(self, streams: Streams, backs_off: bool) -> None:
        """Args:
            streams: of the engine.
            backs_off: waits sleep between polls.
        """
        self.streams, self._backs_off = streams, backs_off
        self._queues: defaultdict[tuple[str, int], StartQueue] = defaultdict(StartQueue)

    def of(self, kind: str, peer: int) -> StartQueue:
        """Returns the queue of a kind ("receive", "copy", "send") for a peer; steps in it keep their order."""
        return self._queues[kind, peer]

    def wait_for(self, message: Message) -> None:
        """Returns when `message` is complete; other messages start meanwhile."""
        wait_until(lambda: self._poll(message), self._backs_off)

    def progress(self) -> None:
        """Starts the messages that may start."""
        for queue in self._queues.values():
            queue.progress()

    def _poll(self, message: Message) -> bool:
        self.progress()
        return message.is_complete()


class Message:
    """A persistent MPI request that starts behind a point of the communication stream (see transport.Message)."""

    def __init__(self, queues: StartQueues, kind: str, peer: int, request: Any) -> None:
        """Args:
            queues: of the engine.
            kind: "receive" or "send".
            peer: the other rank.
            request: mpi4py's persistent request.
        """
        self._queues, self._queue, self._request = queues, queues.of(kind, peer), request
        self._ready = queues.streams.event()
        self._is_started = True

    def Start(self) -> None:
        """Queues the message behind what the communication stream has been given so far."""
        self._is_started = False
        self._ready.mark(self._queues.streams.comm)
        self._enqueue()
        self._queues.progress()

    def Wait(self) -> None:
        """Returns when MPI has sent or received the message."""
        self._queues.wait_for(self)

    def Free(self) -> None:
        """Frees MPI's request."""
        self._request.Free()

    def is_complete(self) -> bool:
        """Whether MPI has sent or received the message."""
        return self._is_started and bool(self._request.Test())

    def _enqueue(self) -> None:
        self._queue.put(self._ready.is_reached, self._start)

    def _start(self) -> None:
        self._is_started = True
        self._request.Start()
