"""The stop protocol: asynchronous workers agree on the iteration after which all of them stop or snapshot."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.launch import grants_threads
from scaffe.errors import UserError
from scaffe.threads import Thread
from scaffe.training.strategies.base import InStep
from scaffe.training.strategies.roles import Replica


@dataclass(frozen=True)
class Promise:
    """A worker's message in the protocol.

    Attributes:
        meeting: number of the stop that it is about, from 0.
        limit: the worker does not begin this iteration before it knows after which one all stop.
    """

    worker: int
    meeting: int
    level: int
    limit: int


class StopStateMachine:
    """One worker's state machine of the protocol. Messages between two workers must arrive in the order sent."""

    def __init__(self, worker: int, n_workers: int) -> None:
        self._worker, self._n_workers = worker, n_workers
        self._meeting = 0
        self._begun: int | None = None  # iterations done before the one that this worker is in, or comes to next
        self._heard: dict[int, dict[int, Promise]] = {}  # by meeting and worker

    def begin(self, n_done: int) -> None:
        """Note that after ``n_done`` iterations this worker goes on to the next one."""
        self._begun = n_done

    def ask(self, level: int) -> Promise | None:
        """Give this worker's promise, if somebody wants a meeting and it has not promised yet.
        ``level``: what this worker wants; 0 for nothing. The promise is to be sent to all others."""
        heard = self._heard.get(self._meeting, {})
        if self._begun is None or self._worker in heard or not (level or heard):
            return None
        promise = Promise(self._worker, self._meeting, level, self._begun + 1)
        self.hear(promise)
        return promise

    def hear(self, promise: Promise) -> None:
        self._heard.setdefault(promise.meeting, {})[promise.worker] = promise

    def must_wait(self, n_done: int) -> bool:
        """Whether this worker, which has done ``n_done`` iterations, must hear more promises before the next one."""
        heard = self._heard.get(self._meeting, {})
        mine = heard.get(self._worker)
        return mine is not None and len(heard) < self._n_workers and n_done >= mine.limit

    def due(self, n_done: int) -> int:
        """What all workers do now, after ``n_done`` iterations: 0 for nothing. The meeting is over with that."""
        heard = self._heard.get(self._meeting, {})
        if len(heard) < self._n_workers or n_done < max(promise.limit for promise in heard.values()):
            return 0
        del self._heard[self._meeting]
        self._meeting += 1
        return max(promise.level for promise in heard.values())


TAG = 1
N_NUMBERS = 4
WAIT_SECONDS = 0.01


class StopProtocol(InStep):
    """Carries the state machine's messages over MPI. All workers make one; one thread uses it. ``workers``: a
    communicator of the workers, whose messages nobody else uses."""

    def __init__(self, workers: Communicator) -> None:
        super().__init__(Communicator.single())
        self._workers, self._level = workers, 0
        self._messages = workers.messages if workers.n_ranks > 1 else None
        self._stops = StopStateMachine(workers.rank, workers.n_ranks)

    def begin(self, n_done: int) -> None:
        self._stops.begin(n_done)

    def agree(self, level: int, iteration: int) -> int:
        """See InStep. A worker waits for others only when something is to be agreed on.
        Raises UserError if a worker has not answered within the communicator's patience."""
        self._level, n_done = level, iteration + 1
        self.poll()
        started = time.monotonic()
        while self._stops.must_wait(n_done):
            if time.monotonic() - started > self._workers.patience:
                raise UserError(f"rank {self._workers.rank} waited {self._workers.patience:g} s for all workers to say "
                                "after which iteration they can stop")
            time.sleep(WAIT_SECONDS)
            self.poll()
        due = self._stops.due(n_done)
        if due:
            self._level = 0  # what was wanted is done: ``poll`` asks for no other meeting
        self._stops.begin(n_done)
        return due

    def close(self) -> None:
        """Nothing to end: messages are handled within calls."""

    def poll(self) -> None:
        """Hear the promises that have come, and give this worker's where one is wanted. Does not wait."""
        while self._messages is not None and (found := self._messages.iprobe(tag=TAG)) is not None:
            numbers = np.empty(N_NUMBERS, np.int64)
            self._messages.recv(numbers, found.source, TAG)
            self._stops.hear(Promise(*numbers.tolist()))
        promise = self._stops.ask(self._level)
        if promise is None or self._messages is None:
            return
        numbers = np.array([promise.worker, promise.meeting, promise.level, promise.limit], np.int64)
        for other in range(self._workers.n_ranks):
            if other != self._workers.rank:
                self._messages.isend(numbers, other, TAG)


ROOT = 0


class ReplicaStopProtocol(InStep):
    """The protocol where ranks share nets. Those of a replica are in step, so that one promise binds them all.

    A thread gives the promise, since the first rank may just then wait for another one of its replica, which waits for
    another replica's update, which waits for the promise. Raises UserError on all ranks, if MPI does not let two
    threads call it.

    Args:
        speakers: the ranks with the same part; those with the first part speak.
        sharing: the ranks of the replica.
    """

    def __init__(self, speakers: Communicator, sharing: Communicator) -> None:
        if not grants_threads():
            raise UserError("replicas that are not in step need MPI_THREAD_MULTIPLE where ranks share nets",
                            everywhere=True)
        super().__init__(sharing)
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._protocol = StopProtocol(speakers) if sharing.rank == ROOT else None
        if self._protocol is not None:
            Thread(self._answer, "stop protocol").start()

    def begin(self, n_done: int) -> None:
        if self._protocol is not None:
            with self._lock:
                self._protocol.begin(n_done)

    def agree(self, level: int, iteration: int) -> int:
        """See InStep. Called by all ranks of the replica."""
        agreed = np.array([level], np.int32)
        self.peers.allreduce(agreed, "max", "mpi")
        if self._protocol is not None:
            with self._lock:
                agreed[0] = self._protocol.agree(int(agreed[0]), iteration)
        self.peers.bcast(agreed, ROOT, "mpi")
        return int(agreed[0])

    def poll(self) -> None:
        """Nothing: the thread polls."""

    def close(self) -> None:
        self._is_over.set()

    def _answer(self) -> None:
        while self._protocol is not None and not self._is_over.wait(WAIT_SECONDS):
            with self._lock:
                self._protocol.poll()


def stop_protocol(replica: Replica) -> StopProtocol | ReplicaStopProtocol:
    """One worker's end of the protocol. Called by all workers."""
    workers, division = replica.communicator.split(0) or replica.communicator, replica.division
    return StopProtocol(workers) if division is None else ReplicaStopProtocol(workers, division.sums)
