"""Messages of device memory through pinned host memory, for an MPI that takes no other.

What only passes through a rank is sent on from where it was received: the device is neither waited for nor asked.
"""

from __future__ import annotations

from typing import Any

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.messages import Lineups, Message
from scaffe.collectives.cuda.span import Span

DEVICE_TO_HOST, HOST_TO_DEVICE = 2, 1  # cudaMemcpyKind


class Slot:
    """A pinned buffer that staged sends to one peer share."""

    def __init__(self, memory: Span) -> None:
        self.memory = memory
        self._request: Any = None
        self._is_sent = True

    def take(self, request: Any) -> None:
        """The buffer is `request`'s from now on, which is yet to start."""
        self._request, self._is_sent = request, False

    def sent(self) -> None:
        """The request has started."""
        self._is_sent = True

    def is_free(self) -> bool:
        """Whether the last message has left."""
        return self._request is None or (self._is_sent and self._request.Test())


class Landing:
    """A pinned buffer that staged receives share, and the messages that pass on what came there last."""

    def __init__(self, memory: Span) -> None:
        self.memory = memory
        self._leaving: list[Message] = []

    def hold(self, message: Message) -> None:
        """`message` has yet to leave from here."""
        self._leaving.append(message)

    def is_free(self) -> bool:
        """Whether all have left."""
        self._leaving = [message for message in self._leaving if not message.is_complete()]
        return not self._leaving


class StagedSend(Message):
    """A send from a pinned buffer: the values are copied there, on a stream of their own, once it is free."""

    def __init__(self, lineups: Lineups, peer: int, request: Any, part: Span, slot: Slot) -> None:
        self._copies = lineups.of("copy", peer)  # known before the line of sends, and so looked at before it
        super().__init__(lineups, "send", peer, request)
        self._part, self._slot = part, slot
        self._copied = lineups.lane.event()
        self._memcpy = device.load().cuda.runtime.memcpyAsync

    def _line_up(self) -> None:
        self._copies.put(self._slot.is_free, self._copy)

    def _copy(self) -> None:
        self._slot.take(self._request)
        stream = self._lineups.lane.copies
        self._ready.hold(stream)
        self._memcpy(self._slot.memory.address, self._part.address, self._part.nbytes, DEVICE_TO_HOST, stream.ptr)
        self._copied.mark(stream)
        self._line.put(self._copied.is_reached, self._start)

    def _start(self) -> None:
        super()._start()
        self._slot.sent()


class StagedReceive(Message):
    """A receive into a pinned buffer, from where the communication stream copies it into the device."""

    def __init__(self, lineups: Lineups, peer: int, request: Any, part: Span, landing: Landing) -> None:
        super().__init__(lineups, "receive", peer, request)
        self._part, self._landing = part, landing
        self._memcpy = device.load().cuda.runtime.memcpyAsync

    def Wait(self) -> None:
        """Return when it was received and its copy into the device is queued."""
        super().Wait()
        stream, memory = self._lineups.lane.stream, self._landing.memory
        self._memcpy(self._part.address, memory.address, self._part.nbytes, HOST_TO_DEVICE, stream.ptr)

    def _line_up(self) -> None:
        self._line.put(self._may_start, self._start)

    def _may_start(self) -> bool:
        return self._landing.is_free() and self._ready.is_reached()


class PassedOn(Message):
    """A send of what a staged receive, which has been waited for, brought: from where it came to lie."""

    def __init__(self, lineups: Lineups, peer: int, request: Any, landing: Landing) -> None:
        self._copies = lineups.of("copy", peer)  # as above
        super().__init__(lineups, "send", peer, request)
        self._landing = landing

    def Start(self) -> None:
        """Line up behind what goes to the same peer; nothing on the device comes before it."""
        self._is_started = False
        self._landing.hold(self)
        self._copies.put(_at_once, lambda: self._line.put(_at_once, self._start))
        self._lineups.progress()


def _at_once() -> bool:
    return True
