"""What becomes of NCCL's collectives once they are queued. Nobody waits for them on the host, and their kernels wait
for other ranks' without end: so a thread looks at the device, at NCCL and at the ranks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.streams import Streams
from scaffe.collectives.errors import CommError
from scaffe.collectives.fault_tolerance.fencing import SuspendAwareClock
from scaffe.threads import Thread

LOOK_SECONDS = 0.1
GRACE_SECONDS = 2.0
"""After an error of NCCL's: a rank that is lost is known by then, and counts as its cause."""


class Verdict(Enum):
    """What to do after a look.

    Attributes:
        IDLE: nothing is queued that has not been reached.
        MARK: record the end of what is queued.
        WAIT: look again later.
        LOST: a rank is lost, for whom the kernels would wait.
        FAILED: NCCL has an error, and no rank is known to be lost.
        LATE: nothing was reached within the deadline.
    """

    IDLE = auto()
    MARK = auto()
    WAIT = auto()
    LOST = auto()
    FAILED = auto()
    LATE = auto()


class QueuedCalls:
    """The calls on one stream, of which one mark at a time says how far the device has come (pure)."""

    def __init__(self, deadline: float) -> None:
        """``deadline``: seconds from a mark on in which it has to be reached."""
        self._deadline, self._n_queued, self._n_marked, self._n_reached = deadline, 0, 0, 0
        self._since, self._failed_at = 0.0, float("inf")

    def queue(self) -> None:
        self._n_queued += 1

    def look(self, now: float, is_reached: bool, has_error: bool, has_loss: bool) -> Verdict:
        """Decides. ``is_reached``: the last mark; ``has_error``: of NCCL's communicator; ``has_loss``: of a rank."""
        if is_reached:
            self._n_reached = self._n_marked
        if self._n_reached == self._n_queued:
            return Verdict.IDLE
        if has_loss:
            return Verdict.LOST
        if has_error:
            self._failed_at = min(self._failed_at, now)
            return Verdict.FAILED if now - self._failed_at > GRACE_SECONDS else Verdict.WAIT
        if self._n_reached == self._n_marked:
            self._n_marked, self._since = self._n_queued, now
            return Verdict.MARK
        return Verdict.LATE if now - self._since > self._deadline else Verdict.WAIT


@dataclass(frozen=True)
class Surroundings:
    """What the watch knows of the ranks, and how it ends the job.

    Attributes:
        deadline: seconds without progress that are too long.
        may_go_on: whether the ranks that are left after a loss may go on.
        has_loss: whether a rank is lost.
        together: watches, as a context of that name, over what returns when all ranks have come to it, as they now do.
        late: ends the job with a line that says who has waited, in the call of that name, for whom.
        failed: ends the job with a line that says why the call of that name has failed.
    """

    deadline: float
    may_go_on: bool
    has_loss: Callable[[], bool]
    together: Callable[[str], AbstractContextManager[None]]
    late: Callable[[str], None]
    failed: Callable[[str, str], None]


class NcclWatch:
    """The thread that looks after one NCCL communicator. ``why_aborted``: empty while it may be used."""

    def __init__(self, communicator: Any, streams: Streams, ranks: Surroundings) -> None:
        self._communicator, self._streams, self._ranks = communicator, streams, ranks
        self._calls, self._clock = QueuedCalls(ranks.deadline), SuspendAwareClock()
        self._label, self.why_aborted = "", ""
        self._mark, self._is_marked = streams.event(), False
        self._wake, self._closed = threading.Event(), False
        self._thread = Thread(self._run, "collectives-nccl")
        self._thread.start()

    def queued(self, label: str) -> None:
        """A call has been queued on the communication stream. Raises CommError where the communicator was aborted
        meanwhile, so that nobody uses what the call did not write."""
        self._label = label
        self._calls.queue()
        self._wake.set()
        self.check()

    def check(self) -> None:
        """Raises CommError once the communicator is aborted, or will be."""
        why = self.why_aborted or ("a rank is lost" if self._ranks.has_loss() else "")
        if why:
            raise CommError(f"{self._label or 'a call'}: NCCL is aborted: {why}")

    def close(self, is_well: bool) -> None:
        """Ends the thread, and the communicator where it is still there. ``is_well``: all ranks call it, and nothing is
        queued."""
        self.stop()
        if not self.why_aborted:
            (self._communicator.destroy if is_well else self._communicator.abort)()

    def stop(self) -> None:
        """Ends the thread alone: before the interpreter ends, in which it must not ask CUDA."""
        self._closed = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        device.make_current(self._streams.number)
        while not self._closed and not self.why_aborted:
            verdict = self._look()
            if verdict is Verdict.IDLE:
                self._wake.wait()
            elif verdict is Verdict.WAIT:
                time.sleep(LOOK_SECONDS)

    def _look(self) -> Verdict:
        self._wake.clear()  # before the look: a call that is queued after it wakes the thread again
        error = self._error()
        verdict = self._calls.look(self._clock.seconds(), self._is_reached(), bool(error), self._ranks.has_loss())
        act: dict[Verdict, Callable[[], None]] = {
            Verdict.MARK: self._record, Verdict.LOST: lambda: self._abort("a rank is lost"),
            Verdict.FAILED: lambda: self._end(error, lambda: self._ranks.failed(self._label, f"has failed: {error}")),
            Verdict.LATE: lambda: self._end("a rank is late", lambda: self._ranks.late(self._label))}
        if verdict in act:
            act[verdict]()
        return verdict

    def _error(self) -> str:
        """What NCCL has found wrong since it began; empty where all is well."""
        try:
            self._communicator.check_async_error()
        except Exception as error:  # CuPy's NcclError has no name without CuPy
            return str(error)
        return ""

    def _is_reached(self) -> bool:
        return self._is_marked and self._mark.is_reached()

    def _record(self) -> None:
        self._mark.mark(self._streams.comm)
        self._is_marked = True

    def _end(self, why: str, tell: Callable[[], None]) -> None:
        self._abort(why)
        tell()

    def _abort(self, why: str) -> None:
        """Ends the kernels, and so whoever waits for the device."""
        self.why_aborted = why
        self._communicator.abort()
