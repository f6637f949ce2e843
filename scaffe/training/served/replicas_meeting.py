"""The workers' agreement where ranks share nets: the first rank of each replica speaks for it."""

from __future__ import annotations

import threading

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.launch import grants_threads
from scaffe.errors import UserError
from scaffe.threads import Thread
from scaffe.training.served.meeting import WAIT_SECONDS, Meeting

ROOT = 0


class ReplicasMeeting:
    """One rank's end of it; see Meeting. The ranks of a replica are in step, so that one promise binds them all.

    A thread gives the promise, since the first rank may just then wait for another one of its replica, which waits for
    another replica's update, which waits for the promise.

    Args:
        speakers: the ranks with the same part; those with the first part speak.
        sharing: the ranks of the replica.

    Raises:
        UserError: on all ranks, if MPI does not let two threads call it.
    """

    def __init__(self, speakers: Communicator, sharing: Communicator) -> None:
        if not grants_threads():
            raise UserError("replicas that are not in step need MPI_THREAD_MULTIPLE where ranks share nets",
                            everywhere=True)
        self._sharing, self._lock, self._is_over = sharing, threading.Lock(), threading.Event()
        self._meeting = Meeting(speakers) if sharing.rank == ROOT else None
        if self._meeting is not None:
            Thread(self._answer, "meeting").start()

    def begin(self, n_done: int) -> None:
        """See Meeting."""
        if self._meeting is not None:
            with self._lock:
                self._meeting.begin(n_done)

    def agree(self, level: int, n_done: int) -> int:
        """See Meeting. Called by all ranks of the replica."""
        agreed = np.array([level], np.int32)
        self._sharing.allreduce(agreed, "max", "mpi")
        if self._meeting is not None:
            with self._lock:
                agreed[0] = self._meeting.agree(int(agreed[0]), n_done)
        self._sharing.bcast(agreed, ROOT, "mpi")
        return int(agreed[0])

    def poll(self) -> None:
        """The thread does."""

    def close(self) -> None:
        """End the thread."""
        self._is_over.set()

    def _answer(self) -> None:
        while self._meeting is not None and not self._is_over.wait(WAIT_SECONDS):
            with self._lock:
                self._meeting.poll()
