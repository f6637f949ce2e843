"""The coordinator: runs the optimiser, shares portions out, never sees a parameter (Dean et al., NIPS 2012, 4.2)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from scaffe.collectives.server.vectors import messages as m
from scaffe.collectives.server.vectors.commands import REDUCING, merged
from scaffe.training.lbfgs.descent import Lbfgs
from scaffe.training.lbfgs.objective import Evaluate, Requests, Run, X
from scaffe.training.lbfgs.portions import Bundle, Portions
from scaffe.training.sandblaster import messages
from scaffe.training.sandblaster.messages import Batch

Send = Callable[[int, m.Message], None]


class Coordinator:
    """Runs the optimizer and assigns portions, message by message. No threads, no MPI.

    Args:
        in_order: gradients are summed in the portions' order.

    Attributes:
        seconds: processor time that it has taken.
    """

    def __init__(self, optimiser: Lbfgs, portions: Portions, n_replicas: int, shards: range, in_order: bool, send: Send,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.optimiser, self.portions, self.seconds = optimiser, portions, 0.0
        self._shards, self._in_order, self._send, self._clock = shards, in_order, send, clock
        self._idle: set[int] = set()
        self._members = set(range(n_replicas))  # those that are not lost; portions go to fewer while some stand still
        self._phase = messages.Begin(0, "", Batch(0, 0, 1), 0.0)
        self._requests: Requests | None = None
        self._run: Run | None = None
        self._asked = self._step = 0
        self._answers: dict[int, m.Answer] = {}
        self._taken: set[int] = set()
        self._staged: dict[tuple[int, Bundle], set[int]] = {}  # the shards that have a bundle
        self._losses: dict[int, float] = {}
        self._is_open = False  # whether a pass is under way
        self._is_reading = False  # whether all replicas are to read the parameters
        self._lost: tuple[int, ...] = ()
        self._wish = 0
        for replica in range(n_replicas):
            portions.join(replica)

    def handle(self, source: int, message: m.Message) -> None:
        started, is_news = time.thread_time(), True
        if isinstance(message, messages.Begin):
            self._begin(message)
        elif isinstance(message, m.Answer):
            self._answered(source, message)
        elif isinstance(message, messages.Free):
            self._idle.add(source)
        elif isinstance(message, messages.Finished):
            self._finished(source, message)
        elif isinstance(message, m.Staged):
            is_news = self._has(source, message)
        elif isinstance(message, messages.Back) and source in self._members:
            self.portions.join(source)
        elif isinstance(message, messages.Taken):
            if message.step == self._step:
                self._taken.add(source)
                self._is_taken()
        elif isinstance(message, messages.Wish):
            self._wish = max(self._wish, message.level)
        if is_news:
            self.tick()
        self.seconds += time.thread_time() - started

    def lose(self, replica: int) -> None:
        self.portions.leave(replica)
        self._members.discard(replica)
        self._idle.discard(replica)
        self._lost += (replica,)
        self._is_taken()
        self.tick()

    def tick(self) -> None:
        """Give portions to idle replicas. Called regularly too, since a portion may have become late."""
        if not self._is_open:
            return
        for replica in self.portions.fence(self._clock()):
            self._send(replica, messages.Fenced())
        for replica in sorted(self._idle & set(self.portions.replicas)):
            portion = self.portions.next(replica, self._clock())
            if portion is not None:
                self._idle.discard(replica)
                batch = self._phase.batch
                self._send(replica, messages.Work(self._step, portion, *batch.images(portion), batch.weight(portion)))
        for replica in self.portions.due():
            self._send(replica, messages.SendBundle(self._step, self.portions.sends(replica, self._clock())))

    def _begin(self, message: messages.Begin) -> None:
        self._phase = message
        kinds = {"renew": self.optimiser.renew, "step": lambda: self.optimiser.step(message.rate),
                 "synchronize": _synchronize}
        self._requests = kinds[message.kind]()
        self._go_on(None)

    def _go_on(self, answer: Any) -> None:
        while self._requests is not None:
            try:
                request = self._requests.send(answer)
            except StopIteration:
                self._requests = None
                break
            if isinstance(request, Evaluate):
                self._evaluate(request)
                return
            if any(isinstance(command, REDUCING) for command in request.commands):
                self._ask(request)
                return
            self._tell(m.Do(request.commands))
            answer = []
        for replica in sorted(self._members):
            self._send(replica, messages.Over(self._phase.phase, self.optimiser.loss, self.optimiser.has_converged,
                                              self._lost, self._wish))
        self._wish = 0

    def _tell(self, message: m.Message) -> None:
        for shard in self._shards:
            self._send(shard, message)

    def _ask(self, request: Run) -> None:
        self._run, self._answers = request, {}
        self._asked += 1
        self._tell(m.Do(request.commands, self._asked))

    def _answered(self, source: int, message: m.Answer) -> None:
        if message.ask != self._asked or self._run is None:
            return
        self._answers[source] = message
        if len(self._answers) < len(self._shards):
            return
        commands = [command for command in self._run.commands if isinstance(command, REDUCING)]
        self._run = None
        self._go_on([merged(command, [block for shard in self._shards for block in self._answers[shard].found[i]])
                     for i, command in enumerate(commands)])

    def _evaluate(self, request: Evaluate) -> None:
        self._step += 1
        self._tell(m.Publish(self._step, request.at, request.into, self._in_order))
        if not request.into:
            self._taken, self._is_reading = set(), True
            for replica in sorted(self._members):
                self._send(replica, messages.Take(self._step))
            return
        self._staged, self._losses, self._is_open = {}, {}, True
        self.portions.begin(self._phase.batch.n_portions)
        for replica in sorted(self._members):
            self._send(replica, messages.Step(self._step))

    def _finished(self, source: int, message: messages.Finished) -> None:
        self._idle.add(source)
        keeps = message.step == self._step and self._is_open and self.portions.finished(source, message.portion,
                                                                                        self._clock())
        if keeps:
            self._losses[message.portion] = message.loss
        self._send(source, messages.Verdict(message.step, message.portion, keeps))

    def _is_taken(self) -> None:
        if self._is_reading and self._taken >= self._members:
            self._is_reading = False
            self._go_on(None)

    def _has(self, shard: int, message: m.Staged) -> bool:
        """A shard has a bundle. Returns whether all have it now, and it counts."""
        if message.step != self._step or not self._is_open:
            return False
        key = (message.replica, message.bundle)
        there = self._staged.setdefault(key, set())
        there.add(shard)
        if len(there) < len(self._shards) or not self.portions.delivered(*key, self._clock()):
            return False
        self._tell(m.Commit(message.step, *key))
        if self.portions.is_complete:
            self._is_open = False
            weights = self._phase.batch.weight
            self._go_on(math.fsum(weights(portion) * loss for portion, loss in self._losses.items()))
        return True


def _synchronize() -> Requests:
    yield Evaluate(X, "")
