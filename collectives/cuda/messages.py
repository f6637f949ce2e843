"""Messages that follow the device: each starts when a point of the communication stream is reached.

The host never waits for the device by itself: a message lines up behind its point, and every wait for any message
starts those whose points have come. Messages between two ranks keep their order, so MPI matches them as plans say.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from .. import device
from .lane import Lane
from .lineup import Lineup, wait_until
from .span import Span

DEVICE_TO_HOST, HOST_TO_DEVICE = 2, 1  # cudaMemcpyKind


class Lineups:
    """The lineups of one engine: one for receives and two for sends a peer. `patient`: waits sleep between looks."""

    def __init__(self, lane: Lane, patient: bool) -> None:
        self.lane, self._patient = lane, patient
        self._lineups: defaultdict[tuple[str, int], Lineup] = defaultdict(Lineup)

    def of(self, kind: str, peer: int) -> Lineup:
        """The steps of one kind ("receive", "copy", "send") that keep their order for `peer`."""
        return self._lineups[kind, peer]

    def wait_for(self, message: Message) -> None:
        """Return when `message` is complete; other messages start meanwhile."""
        wait_until(lambda: self._look(message), self._patient)

    def progress(self) -> None:
        """Start the messages that may start."""
        for lineup in self._lineups.values():
            lineup.progress()

    def _look(self, message: Message) -> bool:
        self.progress()
        return message.is_complete()


class Message:
    """A persistent MPI request that starts behind a point of the communication stream (see transport.Message)."""

    def __init__(self, lineups: Lineups, kind: str, peer: int, request: Any) -> None:
        self._lineups, self._line, self._request = lineups, lineups.of(kind, peer), request
        self._ready = lineups.lane.event()
        self._is_started = True

    def Start(self) -> None:
        """Line up behind what the communication stream has been given so far."""
        self._is_started = False
        self._ready.mark(self._lineups.lane.stream)
        self._line_up()
        self._lineups.progress()

    def Wait(self) -> None:
        """Return when MPI has sent or received it."""
        self._lineups.wait_for(self)

    def Free(self) -> None:
        """Give MPI's request back."""
        self._request.Free()

    def is_complete(self) -> bool:
        """Whether MPI has sent or received it."""
        return self._is_started and self._request.Test()

    def _line_up(self) -> None:
        self._line.put(self._ready.is_reached, self._start)

    def _start(self) -> None:
        self._is_started = True
        self._request.Start()


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


class StagedSend(Message):
    """A send from a pinned buffer: the values are copied there, on a stream of their own, once it is free."""

    def __init__(self, lineups: Lineups, peer: int, request: Any, part: Span, slot: Slot) -> None:
        super().__init__(lineups, "send", peer, request)
        self._copies, self._part, self._slot = lineups.of("copy", peer), part, slot
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

    def __init__(self, lineups: Lineups, peer: int, request: Any, part: Span, landing: Span) -> None:
        super().__init__(lineups, "receive", peer, request)
        self._part, self._landing = part, landing
        self._memcpy = device.load().cuda.runtime.memcpyAsync

    def Wait(self) -> None:
        """Return when it was received and its copy into the device is queued."""
        super().Wait()
        stream = self._lineups.lane.stream
        self._memcpy(self._part.address, self._landing.address, self._part.nbytes, HOST_TO_DEVICE, stream.ptr)
