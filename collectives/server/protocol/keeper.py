"""One shard's state machine: what it does on each message. Pure, no I/O.

Each shard counts every worker's finished iterations in a vector clock (Cui et al., EuroSys 2016, 4.2). A read says how
many iterations the slowest worker must have finished, t - slack in iteration t, and waits until it has. Messages from
one worker arrive in the order sent; messages from different workers may arrive in any order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from scaffe.collectives.messages import message
from scaffe.collectives.server.protocol.messages import (
    Clock,
    Read,
    Ready,
    Release,
    Settings,
    ToShard,
    ToWorker,
    Update,
    WorkerLeft,
)


@message
class Apply:
    """Sum these workers' updates of a batch, in this order, and do one step of the table's rule with the sum."""

    batch: int
    workers: tuple[int, ...]
    settings: Settings


@message
class Send:
    """Send a message to a worker."""

    worker: int
    message: ToWorker


Action = Apply | Send


class Keeper:
    """The state of one shard.

    With ``slack`` 0 (bulk synchronous) the updates of an iteration are applied in worker order once every worker has
    sent its own, so results are bitwise the same in every run. Otherwise each update is applied when it arrives.

    Args:
        members: whom the shard waits for, in the order in which their updates are summed: numbers of workers, or of a
            worker that stands for all of another node (see ``Proxy``).
        slack: how many iterations a worker may be ahead of the slowest; math.inf for no limit.
        joint: batches that name the same rows on every worker, where no other batch touches these rows. With slack 0
            the workers' updates of such a batch are summed and applied in one step, as soon as the last one arrives.
    """

    def __init__(self, members: Sequence[int], slack: float, joint: Collection[int] = ()) -> None:
        self.slack, self.clocks, self.workers = slack, dict.fromkeys(members, 0), set(members)
        self._place = {member: place for place, member in enumerate(members)}
        self._joint = frozenset(joint)
        self._oldest = 0
        self._updates: dict[int, dict[int, dict[int, Settings]]] = defaultdict(dict)  # by clock, batch, worker
        self._reads: list[Read] = []

    def handle(self, message: ToShard) -> list[Action]:
        """Update the state from one message. Returns the actions to carry out, in this order."""
        if isinstance(message, Update):
            return list(self._updated(message))
        if isinstance(message, Read):
            self._reads.append(message)
            return list(self._admitted())
        if isinstance(message, Clock):
            self.clocks[message.worker] = message.clock + 1
        elif isinstance(message, WorkerLeft):
            self.workers.discard(message.worker)
        return list(self._advanced())

    def _updated(self, update: Update) -> Iterator[Action]:
        if self.slack:
            yield from _applied(update.batch, (update.worker,), update.settings)
            return
        waiting = self._updates[update.clock].setdefault(update.batch, {})
        waiting[update.worker] = update.settings
        yield from self._complete(update.clock, update.batch)

    def _complete(self, clock: int, batch: int) -> Iterator[Action]:
        """The step for a joint batch, once all workers have updated it."""
        waiting = self._updates[clock][batch]
        if batch in self._joint and self.workers <= waiting.keys():
            yield from self._summed(batch, self._updates[clock].pop(batch))

    def _advanced(self) -> Iterator[Action]:
        """The actions that become possible when the slowest worker advances or leaves."""
        oldest = min((self.clocks[w] for w in self.workers), default=1 + max(self._updates, default=self._oldest))
        for clock in sorted(self._updates):
            for batch in sorted(self._updates[clock]):
                if clock >= oldest:
                    yield from self._complete(clock, batch)
                elif batch in self._joint:
                    yield from self._summed(batch, self._updates[clock][batch])
                else:
                    for worker, settings in sorted(self._updates[clock][batch].items()):
                        yield from _applied(batch, (worker,), settings)
            if clock < oldest:
                del self._updates[clock]
        self._oldest = max(oldest, self._oldest)
        yield from self._admitted()

    def _summed(self, batch: int, waiting: dict[int, Settings]) -> Iterator[Action]:
        workers = tuple(sorted(waiting, key=self._place.__getitem__))
        yield from _applied(batch, workers, waiting[workers[0]])

    def _admitted(self) -> Iterator[Action]:
        held = []
        for read in self._reads:
            if self._oldest >= read.age:
                yield Send(read.worker, Ready(read.batch, read.clock, self._oldest))
            else:
                held.append(read)
        self._reads = held


def _applied(batch: int, workers: tuple[int, ...], settings: Settings) -> Iterator[Action]:
    yield Apply(batch, workers, settings)
    for worker in workers:
        yield Send(worker, Release(batch))
