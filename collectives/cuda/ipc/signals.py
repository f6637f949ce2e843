"""How the ranks of one node order their streams among one another.

A rank announces a point of its communication stream, then the host threads of all ranks meet, then streams follow the
announced points. CUDA orders a wait behind the last record of an event that was made before the wait was queued, also
for another process's event: the meeting makes it the right record. The next announcement of the same kind comes only
after one more meeting, when every rank has queued its wait. Nobody waits for the device's work itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.cupy_types import Runtime
from scaffe.collectives.cuda.device import Point
from scaffe.collectives.cuda.ipc.windows import PROCESS
from scaffe.collectives.cuda.messages.message import wait_until
from scaffe.collectives.cuda.streams import Streams
from scaffe.collectives.errors import CommError

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

READY, DONE = 0, 1
"""Kinds of points: my buffer may be read and written by the others; I have done with the others' buffers."""


class EventSignals:
    """Interprocess events: streams wait for one another on the device."""

    how = "streams follow one another's events"

    def __init__(self, node_comm: Intracomm, streams: Streams) -> None:
        """Creates and exchanges the events; all ranks of the node call it. Raises CommError on every rank, where one
        cannot share or open events."""
        cuda = device.load().cuda
        self._stream, self._fault = streams.comm, ""
        self._own = [cuda.Event(disable_timing=True, interprocess=True) for _ in (READY, DONE)]
        offers = node_comm.allgather((PROCESS, self._handles(cuda.runtime)))
        self._others = [{rank: self._opened(cuda.runtime, process, handles, kind) for rank, (process, handles) in
                         enumerate(offers) if rank != node_comm.rank} for kind in (READY, DONE)]
        faults = [text for text in node_comm.allgather(self._fault) if text]
        if faults:
            raise CommError(f"events cannot be shared: {faults[0]}", everywhere=True)

    def announce(self, kind: int) -> None:
        """Announces the end of what this rank's communication stream has been given so far, as READY or DONE."""
        self._own[kind].record(self._stream)

    def follow(self, kind: int, ranks: Iterable[int]) -> None:
        """Makes this rank's communication stream follow the points that these ranks (but itself) have announced."""
        for rank in ranks:
            if rank in self._others[kind]:
                self._others[kind][rank].hold(self._stream)

    def _handles(self, runtime: Runtime) -> list[tuple[bytes, int]]:
        try:
            return [(runtime.ipcGetEventHandle(event.ptr), event.ptr) for event in self._own]
        except Exception as error:  # CuPy's CUDARuntimeError: not known by name without CuPy
            self._fault = str(error)
            return []

    def _opened(self, runtime: Runtime, process: str, handles: list[tuple[bytes, int]], kind: int) -> Point:
        try:
            handle, own = handles[kind] if handles else (b"", 0)  # a rank without handles says itself why
            return Point(own if process == PROCESS or not handles else runtime.ipcOpenEventHandle(handle))
        except Exception as error:  # as above
            self._fault = self._fault or str(error)
            return Point(0)


class HostSignals:
    """Where events cannot be shared, or another rank's might never come: the host waits for its own point before it
    meets the others."""

    def __init__(self, streams: Streams, backs_off: bool, why: str) -> None:
        """``backs_off``: waits for the device sleep between polls; ``why``: why events are not shared."""
        self._stream, self._backs_off = streams.comm, backs_off
        self.how = f"hosts wait for their streams, {why}"

    def announce(self, kind: int) -> None:
        wait_until(Point.now(self._stream).is_reached, self._backs_off)

    def follow(self, kind: int, ranks: Iterable[int]) -> None:
        """See Signals: what was announced is over already."""


Signals = EventSignals | HostSignals
"""Points of streams that the ranks of one node announce to one another; ``how``: in words, for reports."""


def signals(node_comm: Intracomm, streams: Streams, backs_off: bool, may_lose_ranks: bool) -> Signals:
    """Makes one engine's signals: interprocess events where every rank of the node can open them, else host waits.

    Args:
        backs_off: waits for the device sleep between polls.
        may_lose_ranks: ranks may go on without one that is lost: a stream that followed its event would stay for ever.
    """
    if may_lose_ranks:
        return HostSignals(streams, backs_off, "since ranks may be lost")
    try:
        return EventSignals(node_comm, streams)
    except CommError as error:
        return HostSignals(streams, backs_off, str(error))
