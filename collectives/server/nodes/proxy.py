"""The proxy of another node's shard: a state machine. Pure, no I/O.

The node's workers talk to it as to the shard. It sums their updates and pushes once for all of them, and it pulls
once for all who need rows of the same age. To the shard the node looks like one worker, called by the node's label:
its clock is that of its slowest worker.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from scaffe.collectives.messages import message
from scaffe.collectives.server.protocol.keeper import Send
from scaffe.collectives.server.protocol.messages import Clock, Read, Ready, Release, Source, ToShard, Update, WorkerLeft


@message
class Push:
    """Send the shard the sum of these workers' updates of a batch, in this order; ``update`` announces it."""

    update: Update
    workers: tuple[int, ...]


@message
class Tell:
    """Send the shard a message, which it must not see before the pushes so far have arrived.

    A ``Read`` has the request's number as its clock, so that answers tell which they are of.
    """

    message: Clock | Read | WorkerLeft


Action = Push | Tell | Send


@dataclass
class _Rows:
    """What the node has of a batch's rows on the shard, and what it has asked for."""

    age: int = 0  # all updates of iterations before this one are in
    seen: int = 0  # pushes that had begun when the newest answer was asked for
    n_answers: int = 0
    asked: dict[int, tuple[int, int]] = field(default_factory=dict)  # under way: by number, age and pushes begun


class Proxy:
    """The state of one proxy.

    Args:
        workers: numbers of the node's workers; the first is the node's label.
        pooled: batches that name the same rows on all workers of the node: they are pulled for all at once.
        merged: those of them whose updates may be pushed as one sum; all of them if None.
    """

    def __init__(self, workers: Sequence[int], slack: float, pooled: Collection[int] = (),
                 merged: Collection[int] | None = None) -> None:
        self._label, self._slack, self._pooled = min(workers, default=-1), slack, frozenset(pooled)
        self._merged = self._pooled if merged is None else frozenset(merged)
        self._clocks = dict.fromkeys(workers, 0)  # of those that have not left
        self._reached, self._has_left = 0, False  # as the shard has been told
        self._updates: dict[Source, dict[int, Update]] = defaultdict(dict)  # made, not yet pushed
        self._pushed: set[Source] = set()  # pushed, not yet applied
        self._reads: dict[Source, dict[int, tuple[Read, int]]] = defaultdict(dict)  # waiting, and answers seen then
        self._rows: dict[Source, _Rows] = defaultdict(_Rows)
        self._n_pushes = self._n_asked = 0
        self._last_push: dict[int, int] = defaultdict(int)  # by worker

    def handle(self, message: ToShard) -> list[Action]:
        """Update the state from a worker's message. Returns the actions to carry out, in this order."""
        if isinstance(message, Update):
            self._updates[self._source(message)][message.worker] = message
        elif isinstance(message, Read):
            source = self._source(message)
            self._reads[source][message.worker] = message, self._rows[source].n_answers
        elif isinstance(message, Clock):
            self._clocks[message.worker] = message.clock + 1
        else:
            del self._clocks[message.worker]
            for waiting in self._reads.values():
                waiting.pop(message.worker, None)
        return list(self._flow())

    def sent(self, push: Push) -> list[Action]:
        """A push has left: its workers' update buffers may be filled again."""
        return [Send(worker, Release(push.update.batch)) for worker in push.workers]

    def released(self, source: Source) -> list[Action]:
        """The shard has applied a push: it has room for the next one of this source."""
        self._pushed.remove(source)
        return list(self._flow())

    def answered(self, source: Source, ready: Ready) -> list[Action]:
        """Rows that were asked for have come, all of them."""
        rows = self._rows[source]
        _, seen = rows.asked.pop(ready.clock)
        rows.age, rows.seen, rows.n_answers = max(rows.age, ready.age), max(rows.seen, seen), rows.n_answers + 1
        return list(self._flow())

    def _source(self, message: Update | Read) -> Source:
        shared = self._merged if isinstance(message, Update) else self._pooled
        return message.batch, self._label if message.batch in shared else message.worker

    def _flow(self) -> Iterator[Action]:
        """All that can be done now; pushes first, so that what follows is true for the shard."""
        for source in [source for source, updates in self._updates.items() if updates and source not in self._pushed]:
            yield from self._push(source)
        waiting = [update for updates in self._updates.values() for update in updates.values()]
        yield from self._tell_clock(waiting)
        held = {update.worker for update in waiting} if self._slack else set()
        for source, reads in self._reads.items():
            if reads:
                yield from self._answer(source, reads, held)
        if not self._clocks and not waiting and not self._has_left:
            self._has_left = True
            yield Tell(WorkerLeft(self._label))

    def _push(self, source: Source) -> Iterator[Action]:
        """The push of what has come, unless slack 0 waits for more workers."""
        updates = self._updates[source]
        workers = sorted(updates)
        if not self._slack and source[0] in self._merged:
            clock = min(update.clock for update in updates.values())
            workers = [worker for worker in workers if updates[worker].clock == clock]
            if any(worker not in workers and reached <= clock for worker, reached in self._clocks.items()):
                return
        taken = [updates.pop(worker) for worker in workers]
        self._pushed.add(source)
        self._n_pushes += 1
        self._last_push.update(dict.fromkeys(workers, self._n_pushes))
        yield Push(Update(source[1], source[0], taken[0].clock, taken[0].settings), tuple(workers))

    def _tell_clock(self, waiting: Sequence[Update]) -> Iterator[Action]:
        """The node's clock: an update that has not been pushed holds it back like a worker that has not made it."""
        reached = min([*self._clocks.values(), *(update.clock for update in waiting)], default=self._reached)
        if reached > self._reached:
            self._reached = reached
            yield Tell(Clock(self._label, reached - 1))

    def _answer(self, source: Source, reads: dict[int, tuple[Read, int]], held: set[int]) -> Iterator[Action]:
        """Answers reads whose rows are there, and asks for others' once the reader's own updates are on their way."""
        rows = self._rows[source]
        for worker, (read, n_answers) in list(reads.items()):
            if worker in held:
                continue
            if self._is_there(rows, read, n_answers):
                del reads[worker]
                yield Send(worker, Ready(read.batch, read.clock, rows.age))
            elif not self._is_asked(rows, read):
                self._n_asked += 1
                rows.asked[self._n_asked] = read.age, self._n_pushes
                yield Tell(Read(source[1], read.batch, self._n_asked, read.age))

    def _is_there(self, rows: _Rows, read: Read, n_answers: int) -> bool:
        """Whether the node's copy is new enough; without a limit, whether any answer has come since the question."""
        is_new = rows.n_answers > n_answers or not math.isinf(self._slack)
        return is_new and rows.age >= read.age and rows.seen >= self._own(read.worker)

    def _is_asked(self, rows: _Rows, read: Read) -> bool:
        """Whether a request under way will serve the read; one for newer rows might have to wait for this worker."""
        return any(age == read.age and seen >= self._own(read.worker) for age, seen in rows.asked.values())

    def _own(self, worker: int) -> int:
        """The push that a read of the worker must include: with slack 0 the age alone says that all are in."""
        return self._last_push[worker] if self._slack else 0


class Arrivals:
    """Orders what has come over one link: pushes are announced in order, their rows arrive in any order."""

    def __init__(self) -> None:
        self._queue: deque[ToShard] = deque()

    def announced(self, update: Update) -> None:
        """A push begins; its rows follow."""
        self._queue.append(update)

    def complete(self, update: Update) -> list[ToShard]:
        """A push's rows are there. Returns what the shard may act on now, in this order."""
        self._queue.remove(update)
        return [update, *self._front()]

    def came(self, message: Clock | Read | WorkerLeft) -> list[ToShard]:
        """A message without rows. Returns what the shard may act on now: nothing while earlier pushes are open."""
        self._queue.append(message)
        return self._front()

    def _front(self) -> list[ToShard]:
        found: list[ToShard] = []
        while self._queue and not isinstance(self._queue[0], Update):
            found.append(self._queue.popleft())
        return found
