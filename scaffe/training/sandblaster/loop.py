"""The loop of a replica's main thread: it computes the coordinator's portions until a phase is over."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.training.sandblaster.batch import Batch
from scaffe.training.sandblaster.messages import Begin, Finished, Free, Over, Take, Taken, Wish, Work
from scaffe.training.sandblaster.replica import COORDINATOR_RANK, Replica
from scaffe.training.sandblaster.service import Service
from scaffe.training.strategies.base import InStep
from scaffe.training.timers import Timers

Phase = tuple[str, Batch, float]
"""Kind, batch and learning rate."""


class Loop:
    """Runs phases on one replica. ``compute``: from a first visit and a number of images to the loss; leaves the
    gradients in the replica's ``diff``."""

    def __init__(self, service: Service, replica: Replica, n_shards: int, timers: Timers,
                 compute: Callable[[int, int], float]) -> None:
        self._service, self._replica, self._n_shards = service, replica, n_shards
        self._timers, self._compute = timers, compute
        self._step = -1  # whose parameters the net has
        self._is_known = False

    def run(self, phase: int, begin: Phase | None) -> Over:
        """Take part in a phase; at once back if it is over."""
        if begin is not None:
            self._say(Begin(phase, *begin))
        if not self._is_known:
            self._is_known = True
            self._say(Free())
        while (job := self._next(phase)) is not None:
            if isinstance(job, Take):
                self._read(job.step)
                self._say(Taken(job.step))
            else:
                self._work(job)
        return self._replica.over.pop(phase)

    def wish(self, level: int) -> None:
        """Ask that all replicas do something after the same iteration; a later phase's ``Over`` says what."""
        self._say(Wish(level))

    def load(self, vector: str, whole: np.ndarray) -> None:
        """Put a whole vector on the shards, before the first phase or between two."""
        self._replica.n_loaded = 0
        self._service.run(lambda: self._replica.load(vector, whole))
        self._wait(lambda: self._replica.n_loaded == self._n_shards, f"the shards to take {vector}")

    def collect(self, vector: str, out: np.ndarray) -> np.ndarray:
        """Copy a whole vector from the shards into ``out``, between two phases."""
        self._replica.n_read = 0
        self._service.run(lambda: self._replica.collect(vector, out))
        self._wait(lambda: self._replica.n_read == self._n_shards, f"{vector} from the shards")
        return out

    # --- inside

    def _next(self, phase: int) -> Work | Take | None:
        replica = self._replica
        with self._timers("communication", "wait for a portion"):
            self._service.wait_for(lambda: phase in replica.over or bool(replica.jobs), "a portion to compute")
        with self._service.changed:
            return None if phase in replica.over else replica.jobs.popleft()

    def _work(self, job: Work) -> None:
        if self._step != job.step:
            self._read(job.step)
        loss = self._compute(job.first, job.n_images)
        replica = self._replica
        replica.finished(job.weight)
        self._say(Finished(job.step, job.portion, loss))
        with self._timers("communication", "wait for a verdict"):
            self._service.wait_for(lambda: replica.verdict, "the coordinator's verdict on a portion")

    def _read(self, step: int) -> None:
        self._replica.n_read = 0
        self._service.run(partial(self._replica.read, step))
        with self._timers("communication", "read the parameters"):
            self._service.wait_for(lambda: self._replica.n_read == self._n_shards, "parameters")
        self._step = -1 if self._replica.is_mixed else step

    def _say(self, message: Begin | Free | Finished | Taken | Wish) -> None:
        self._service.run(lambda: self._service.post.send(COORDINATOR_RANK, message))

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        with self._timers("communication", what):
            self._service.wait_for(condition, what)


class InStepAtPhases(InStep):
    """Replicas are in step at phases' ends. What one wants, the coordinator tells all at the end of a later phase."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(Communicator.single())
        self._loop = loop
        self._wished = self._wish = 0

    def agree(self, level: int, iteration: int) -> int:
        if level > self._wished:
            self._wished = level
            self._loop.wish(level)
        wish, self._wish = self._wish, 0
        if wish:
            self._wished = 0
        return wish

    def hear(self, wish: int) -> None:
        self._wish = max(self._wish, wish)
