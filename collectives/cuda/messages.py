"""Messages that follow the device: each starts when a point of the communication stream is reached.

The host never waits for the device by itself: a message lines up behind its point, and every wait for any message
starts those whose points have come. Messages between two ranks keep their order, so MPI matches them as plans say.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from scaffe.collectives.cuda.lane import Lane
from scaffe.collectives.cuda.lineup import Lineup, wait_until


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
