"""A replica's messages, and the loop of its main thread, which computes portions until a phase is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.server.vectors import messages as m
from scaffe.training.sandblaster.messages import (
    Back,
    Batch,
    Begin,
    Fenced,
    Finished,
    Free,
    Over,
    SendBundle,
    Step,
    Take,
    Taken,
    Verdict,
    Wish,
    Work,
)
from scaffe.training.sandblaster.service import Service
from scaffe.training.strategies.base import InStep
from scaffe.training.timers import Timers

Send = Callable[[int, m.Message, np.ndarray | None], None]
COORDINATOR_RANK = 0


class Replica:
    """Handles a replica's messages for the thread that computes, which reads the attributes.

    Args:
        learnt: the intervals of them that the optimiser changes; others are neither read nor summed.
        intervals: by shard's rank, the interval that it holds.
        send: sends a message, perhaps with an array, to a rank.

    Attributes:
        jobs: what the net is to do next, in order.
        over: the phases that are over, of those that this rank has not come out of.
        verdict: whether the portion that was finished last has been judged.
        n_read, n_loaded: shards that have sent what was asked for, or taken over what was sent.
        is_mixed: whether what was read is of another step than asked for.
        n_portions: portions of this replica that count.
    """

    def __init__(self, data: np.ndarray, diff: np.ndarray, learnt: Sequence[slice], intervals: dict[int, slice],
                 send: Send) -> None:
        self._data, self._diff, self._learnt, self._intervals, self._send = data, diff, learnt, intervals, send
        self.jobs: deque[Work | Take] = deque()
        self.over: dict[int, Over] = {}
        self.verdict, self.is_mixed = True, False
        self.n_read = self.n_loaded = self.n_portions = self.newest = 0
        self._asked, self._weight = -1, 0.0
        self._target, self._wanted = data, list(learnt)
        self._bundle = np.zeros_like(diff)
        self._is_empty = True

    def handle(self, source: int, message: m.Message, payload: np.ndarray | None) -> None:
        if isinstance(message, Over):
            self.over[message.phase] = message
        elif isinstance(message, Step):
            self._begin(message.step)
        elif isinstance(message, Work) and message.step < self.newest:
            self._send(COORDINATOR_RANK, Free(), None)
        elif isinstance(message, (Work, Take)):
            self.jobs.append(message)
        elif isinstance(message, Verdict):
            self._judge(message)
        elif isinstance(message, SendBundle):
            self._send_bundle(message)
        elif isinstance(message, Fenced):
            self._forget()
            self._send(COORDINATOR_RANK, Back(), None)
        elif isinstance(message, m.Values):
            self._take(message, payload)
        elif isinstance(message, m.Loaded):
            self.n_loaded += 1

    def read(self, step: int) -> None:
        """Ask all shards for the parameters of a step; they are there when ``n_read`` is the number of shards."""
        self._asked, self.is_mixed = step, False
        self._target, self._wanted = self._data, list(self._learnt)
        for shard in self._intervals:
            self._send(shard, m.Read(step), None)

    def collect(self, vector: str, out: np.ndarray) -> None:
        self._asked, self._target, self._wanted = -1, out, [slice(0, len(out))]
        for shard in self._intervals:
            self._send(shard, m.Give(vector), None)

    def load(self, vector: str, whole: np.ndarray) -> None:
        """Send each shard its interval of a vector; it is there when ``n_loaded`` is the number of shards."""
        for shard, place in self._intervals.items():
            n_elems = place.stop - place.start
            self._send(shard, m.Load(vector, n_elems), whole[place].copy() if n_elems else None)

    def finished(self, weight: float) -> None:
        self.verdict, self._weight = False, weight

    def _begin(self, step: int) -> None:
        self.newest = step
        self._forget()
        stale = [job for job in self.jobs if isinstance(job, Work) and job.step < step]
        for job in stale:
            self.jobs.remove(job)
            self._send(COORDINATOR_RANK, Free(), None)

    def _forget(self) -> None:
        if not self._is_empty:
            self._bundle[:] = 0
            self._is_empty = True

    def _judge(self, message: Verdict) -> None:
        if message.keeps and message.step == self.newest:
            self.n_portions += 1
            weight = self._diff.dtype.type(self._weight)
            for place in self._learnt:
                if self._is_empty:
                    np.multiply(self._diff[place], weight, out=self._bundle[place])
                else:
                    self._bundle[place] += weight * self._diff[place]
            self._is_empty = False
        self.verdict = True

    def _send_bundle(self, message: SendBundle) -> None:
        if message.step < self.newest:
            return
        bundle, self._bundle, self._is_empty = self._bundle, np.zeros_like(self._diff), True
        for shard, place in self._intervals.items():
            n_elems = place.stop - place.start
            self._send(shard, m.Push(message.step, message.bundle, n_elems), bundle[place] if n_elems else None)

    def _take(self, message: m.Values, payload: np.ndarray | None) -> None:
        self.n_read += 1
        self.is_mixed = self.is_mixed or message.step != self._asked
        if payload is None:
            return
        start, stop = message.start, message.start + message.count
        for place in self._wanted:
            first, last = max(place.start, start), min(place.stop, stop)
            if first < last:
                self._target[first:last] = payload[first - start:last - start]


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
        self._say(Wish(level))

    def load(self, vector: str, whole: np.ndarray) -> None:
        """Put a whole vector on the shards, before the first phase or between two."""
        self._replica.n_loaded = 0
        self._service.run(lambda: self._replica.load(vector, whole))
        self._wait(lambda: self._replica.n_loaded == self._n_shards, f"the shards to take {vector}")

    def collect(self, vector: str, out: np.ndarray) -> np.ndarray:
        self._replica.n_read = 0
        self._service.run(lambda: self._replica.collect(vector, out))
        self._wait(lambda: self._replica.n_read == self._n_shards, f"{vector} from the shards")
        return out

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
