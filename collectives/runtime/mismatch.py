"""Detects ranks that make different collective calls, each of which all ranks have agreed on before.

Ranks compare a call when they make it for the first time (see `engine`). A repeated call is not compared, and one that
differs leaves ranks waiting for each other. A rank that has waited for a while sends rank 0 its last calls. Once rank 0
waits too, it compares them with its own by their numbers and ends the job with a line that says what differs.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from scaffe.collectives.errors import CommError

TAG = 78
CALLS_KEPT = 1024
COMPARISON_SECONDS, POLL_SECONDS = 3.0, 0.05


def difference(own: dict[int, str], told: dict[int, dict[int, str]]) -> str:
    """Compares calls by their numbers.

    Args:
        own: rank 0's calls.
        told: the same of other ranks, by rank, as far as they have told.

    Returns:
        A line about the first call that some rank made otherwise than rank 0; empty where none did or none can be
        compared.
    """
    found = [(number, rank) for rank, calls in told.items() for number, text in calls.items()
             if own.get(number, text) != text]
    if not found:
        return ""
    number, rank = min(found)
    return f"ranks disagree: rank 0 has {own[number]}, rank {rank} has {told[rank][number]}"


def require_alike(calls: Sequence[tuple[str, str]]) -> None:
    """Checks that all ranks make the same call, and that each can. Raises CommError: the same on every rank, where
    calls differ or one has a fault."""
    faults = [(rank, fault) for rank, (_, fault) in enumerate(calls) if fault]
    if faults:
        rank, fault = faults[0]
        is_alike = len(faults) == len(calls) and len({text for _, text in faults}) == 1
        raise CommError(fault if is_alike else f"rank {rank}: {fault}", everywhere=True)
    for rank, (call, _) in enumerate(calls):
        if call != calls[0][0]:
            raise CommError(f"ranks disagree: rank 0 has {calls[0][0]}, rank {rank} has {call}", everywhere=True)


class MismatchDetector:
    """Records the calls of this rank and exchanges them with the other ranks.

    `record` and `recorded` are for the thread that makes calls, the other methods for threads that wait.
    """

    def __init__(self, comm: Any, found: Callable[[str], None]) -> None:
        """``comm``: mpi4py communicator that nobody else uses; None where only one thread may call MPI: then nothing is
        exchanged; ``found``: called on rank 0 with the line that says what differs."""
        self._comm, self._found = comm, found
        self._calls: deque[tuple[int, object]] = deque(maxlen=CALLS_KEPT)
        self._n_calls = self._n_told = 0
        self._told: dict[int, dict[int, str]] = {}
        self._sending: list[Any] = []
        self._n_sent, self._n_read = 0, Counter[int]()
        self._lock = threading.Lock()

    def record(self, call: object) -> None:
        """This rank makes a call, which its text describes."""
        self._n_calls += 1
        self._calls.append((self._n_calls, call))

    @contextmanager
    def recorded(self, call: object) -> Iterator[None]:
        """Records a call, as a context. A CommError in it is one on all ranks: then the record is taken back."""
        self.record(call)
        try:
            yield
        except CommError:
            self._calls.pop()
            raise

    def check(self) -> None:
        """To be called when this rank has waited for a while: sends rank 0 its calls, or compares them on rank 0."""
        if self._comm is None:
            return
        with self._lock:
            if self._comm.rank:
                self._tell()
            else:
                self._compare()

    def late(self) -> list[int]:
        """Finds who is missing when the deadline has passed inside MPI.

        Only rank 0 is sent the calls. Another rank leaves it time to end the job, and names rank 0 where it does not.

        Returns:
            Ranks that have not sent this rank's last call.
        """
        if self._comm is None:
            return []
        if self._comm.rank:
            time.sleep(COMPARISON_SECONDS)
            return [0]
        self.check()
        with self._lock:
            return [rank for rank in range(1, self._comm.size) if max(self._told.get(rank, {0: ""})) < self._n_calls]

    def await_comparison(self) -> None:
        """After a failure inside MPI: leaves rank 0 time to find out whether ranks made different calls."""
        until = time.monotonic() + COMPARISON_SECONDS
        while self._comm is not None and time.monotonic() < until:
            self.check()
            time.sleep(POLL_SECONDS)

    def drain(self) -> None:
        """Receives, on rank 0, all that has been sent, before the communicator is freed. All ranks call it."""
        if self._comm is None:
            return
        for source, n_sent in enumerate(self._comm.gather(self._n_sent) or ()):
            for _ in range(n_sent - self._n_read[source]):
                self._comm.recv(source=source, tag=TAG)
        for request in self._sending:
            request.wait()

    def _tell(self) -> None:
        self._sending = [request for request in self._sending if not request.test()[0]]
        if self._n_told < self._n_calls:
            self._n_told = self._n_calls
            self._n_sent += 1
            self._sending.append(self._comm.isend(self._texts(), 0, TAG))

    def _compare(self) -> None:
        from mpi4py import MPI

        status = MPI.Status()
        while self._comm.iprobe(MPI.ANY_SOURCE, TAG, status):
            self._n_read[status.source] += 1
            self._told[status.source] = self._comm.recv(source=status.source, tag=TAG)
        if self._told and (line := difference(self._texts(), self._told)):
            self._told = {}
            self._found(line)

    def _texts(self) -> dict[int, str]:
        """This rank's last calls by number. Equal calls share one text, which is then told once."""
        texts: dict[object, str] = {}
        return {number: texts.setdefault(call, str(call)) for number, call in list(self._calls)}
