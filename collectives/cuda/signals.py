"""How ranks of one node follow one another on the device, between two meetings of their host threads.

A rank announces a point of its communication stream and meets the others; then streams follow announced points. CUDA
orders a wait behind the last record of an event that was made before the wait was queued, also of another process's
event, so the meeting is what makes it the right record; and the next announcement of the same kind comes only after one
more meeting, when every rank has queued its wait. The device's work itself is not waited for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.device import Point
from scaffe.collectives.cuda.lane import Lane
from scaffe.collectives.cuda.lineup import wait_until
from scaffe.collectives.cuda.windows import PROCESS
from scaffe.collectives.errors import CommError

READY, DONE = 0, 1
"""This rank's buffer may be read and written by the others; this rank has done with the others' buffers."""


class Signals(Protocol):
    """Points that ranks of one node announce to one another."""

    how: str
    """In words, for reports."""

    def announce(self, kind: int) -> None:
        """What this rank's communication stream has been given so far is the point of this kind."""

    def follow(self, kind: int, ranks: Iterable[int]) -> None:
        """This rank's communication stream follows these ranks' points (not its own), which have been announced."""


class EventSignals:
    """Interprocess events: streams wait for one another on the device."""

    how = "streams follow one another's events"

    def __init__(self, node_comm: Any, lane: Lane) -> None:
        """All ranks of the node call it. Raises CommError on all of them where one cannot."""
        cuda = device.load().cuda
        self._stream, self._fault = lane.stream, ""
        self._own = [cuda.Event(disable_timing=True, interprocess=True) for _ in (READY, DONE)]
        offers = node_comm.allgather((PROCESS, self._handles(cuda.runtime)))
        self._others = [{rank: self._opened(cuda.runtime, process, handles, kind) for rank, (process, handles) in
                         enumerate(offers) if rank != node_comm.rank} for kind in (READY, DONE)]
        faults = [text for text in node_comm.allgather(self._fault) if text]
        if faults:
            raise CommError(f"events cannot be shared: {faults[0]}", everywhere=True)

    def announce(self, kind: int) -> None:
        """See Signals."""
        self._own[kind].record(self._stream)

    def follow(self, kind: int, ranks: Iterable[int]) -> None:
        """See Signals."""
        for rank in ranks:
            if rank in self._others[kind]:
                self._others[kind][rank].hold(self._stream)

    def _handles(self, runtime: Any) -> list[tuple[bytes, int]]:
        try:
            return [(runtime.ipcGetEventHandle(event.ptr), event.ptr) for event in self._own]
        except Exception as error:  # CuPy's CUDARuntimeError: not known by name without CuPy
            self._fault = str(error)
            return []

    def _opened(self, runtime: Any, process: str, handles: list[tuple[bytes, int]], kind: int) -> Point:
        try:
            handle, own = handles[kind] if handles else (b"", 0)  # a rank without handles says itself why
            return Point(own if process == PROCESS or not handles else runtime.ipcOpenEventHandle(handle))
        except Exception as error:  # as above
            self._fault = self._fault or str(error)
            return Point(0)


class HostSignals:
    """Where events cannot be shared: the host waits for its own point before it meets the others."""

    def __init__(self, lane: Lane, patient: bool, why: str) -> None:
        """`why` events cannot be had."""
        self._stream, self._patient = lane.stream, patient
        self.how = f"hosts wait for their streams, {why}"

    def announce(self, kind: int) -> None:
        """See Signals."""
        wait_until(Point.now(self._stream).is_reached, self._patient)

    def follow(self, kind: int, ranks: Iterable[int]) -> None:
        """See Signals: what was announced is done."""


def signals(node_comm: Any, lane: Lane, patient: bool) -> Signals:
    """Interprocess events where all ranks of the node can open them, else the host's waits."""
    try:
        return EventSignals(node_comm, lane)
    except CommError as error:
        return HostSignals(lane, patient, str(error))
