"""After which iteration all workers stop or snapshot, when none waits for the others in every iteration. Pure.

A worker that is told to stop, or hears that another was, promises all others not to begin an iteration beyond the one
it is in before it has heard every worker's promise. The latest iteration promised is where all meet: nobody is beyond
it yet. A worker gives its promise also while it waits for something else, so that no two wait for one another.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """A worker's promise.

    Attributes:
        worker: whose.
        meeting: number of the meeting that it is about, from 0.
        level: what the worker wants to be done there.
        limit: the worker begins no iteration from this one on before it knows where the workers meet.
    """

    worker: int
    meeting: int
    level: int
    limit: int


class Stops:
    """One worker's part in the agreement. Messages between two workers arrive in the order sent.

    Args:
        worker: this one's number.
        n_workers: how many there are.
    """

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

        Args:
            level: what this worker wants; 0 for nothing.

        Returns:
            the promise, to be sent to all others; None if there is none to give.
        """
        heard = self._heard.get(self._meeting, {})
        if self._begun is None or self._worker in heard or not (level or heard):
            return None
        promise = Promise(self._worker, self._meeting, level, self._begun + 1)
        self.hear(promise)
        return promise

    def hear(self, promise: Promise) -> None:
        """Take a worker's promise."""
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
