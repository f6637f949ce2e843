"""One worker's state machine: which calls are allowed when, and which messages go to the shards. Pure, no I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from scaffe.collectives.errors import CommError
from scaffe.collectives.server.protocol.messages import (
    Clock,
    Read,
    Ready,
    Settings,
    ToShard,
    ToWorker,
    Update,
    WorkerLeft,
)


@dataclass
class _Batch:
    shards: tuple[int, ...]
    name: str
    is_local: bool = False
    asked: int = -1  # the last iteration in which a read was asked for
    n_asked: int = 0  # how often one was
    age: int = 0  # how many iterations of every worker the rows must include
    read: int = -1  # the last iteration with a read
    ages: dict[int, int] = field(default_factory=dict)  # by shard, the answers of that iteration
    is_read: bool = False  # the caller holds the read buffer
    is_open: bool = False  # the caller holds the update buffer
    n_unreleased: int = 0  # shards that have not applied the last update yet
    updated: int = -1  # the last iteration with an update


class Client:
    """The state of one worker.

    Args:
        shards: for each batch of shared rows, the shards that hold some of them.
        slack: iterations that a worker may be ahead of the slowest; the same value as in every ``Keeper``.
        n_local: how many batches of the worker's own rows (local) follow the others: reads and updates of these wait
            for nothing, send nothing, and may be repeated in an iteration.
        names: what errors call the batches; "batch 0" and so on by default.

    Attributes:
        staleness: for each read of shared rows so far, how many iterations the slowest worker was behind this one.
    """

    def __init__(self, worker: int, shards: Sequence[tuple[int, ...]], n_shards: int, slack: float,
                 n_local: int = 0, names: Sequence[str] = ()) -> None:
        self.worker, self.clock, self._slack = worker, 0, slack
        self.staleness: list[int] = []
        self._n_shards, self._has_left = n_shards, False
        names = names or [f"batch {batch}" for batch in range(len(shards) + n_local)]
        self._batches = [_Batch(of, name) for of, name in zip(shards, names, strict=False)]
        self._batches += [_Batch((), name, is_local=True) for name in names[len(shards) :]]
        self._reads: list[int] = []  # the batches with a read in this iteration, in that order
        self._ahead: dict[int, None] = {}  # those asked for ahead and not read since, in that order

    def ask(self, batch: int, newest: bool = False, prefetched: bool = False) -> list[tuple[int, ToShard]]:
        """Ask for a batch's rows.

        Args:
            newest: wait for all updates of the iterations before this one, whatever the slack.
            prefetched: take what was asked for in an earlier iteration, if it has come and is new enough. This
                worker's own updates since then may be missing.

        Returns:
            (shard, message) pairs to send; empty if the rows were asked for in this iteration already.
        """
        state, age = self._batches[batch], self._wanted_age(newest)
        is_asked = state.asked == self.clock and (age <= state.age or self.is_ready(batch, age))
        state.age = age
        if is_asked or (prefetched and self.is_ready(batch)):
            return []
        if state.asked != self.clock:
            state.asked, state.ages = self.clock, {}
        state.n_asked += 1
        return [(shard, Read(self.worker, batch, self.clock, age)) for shard in state.shards]

    def prefetch(self, batches: Sequence[int]) -> list[tuple[int, ToShard]]:
        """Ask for batches ahead of their reads. Returns the (shard, message) pairs to send."""
        self._ahead |= dict.fromkeys(batches)
        return [message for batch in batches for message in self.ask(batch)]

    def prefetched(self) -> list[int]:
        """The batches asked for ahead and not read since whose rows may be read, in the order asked."""
        return [batch for batch in self._ahead if self.is_ready(batch)]

    def question(self, batch: int) -> int:
        """How often the batch's rows have been asked for: which question an answer answers."""
        return self._batches[batch].n_asked

    def is_ready(self, batch: int, age: int | None = None) -> bool:
        """Whether all shards have said that the rows may be read, with updates up to ``age``: as asked, if None."""
        state = self._batches[batch]
        wanted = state.age if age is None else age
        return len(state.ages) == len(state.shards) and min(state.ages.values(), default=wanted) >= wanted

    def _wanted_age(self, newest: bool) -> int:
        if newest:
            return self.clock
        return 0 if math.isinf(self._slack) else max(self.clock - int(self._slack), 0)

    def begin_read(self, batch: int) -> None:
        """Check that a read may begin. Raises CommError if the batch is being read or was updated this iteration."""
        state = self._batches[batch]
        self._refuse(self._has_left, "reads after it has left")
        self._refuse(state.is_read, f"reads {state.name} again before post_read")
        self._refuse(state.is_local and state.is_open, f"reads {state.name} before update gives its buffer back")
        is_late = not self._slack and not state.is_local and state.updated == self.clock
        self._refuse(is_late, f"reads {state.name} after it has updated it in the same iteration; slack 0 allows no "
                              "such read")

    def opened_read(self, batch: int) -> None:
        state = self._batches[batch]
        if state.read != self.clock:
            self._reads.append(batch)
        state.is_read, state.read = True, self.clock
        self._ahead.pop(batch, None)
        if not state.is_local:
            self.staleness.append(max(self.clock - min(state.ages.values(), default=self.clock), 0))

    def end_read(self, batch: int) -> None:
        """Note that the caller is done with the rows. Raises CommError if it held none."""
        state = self._batches[batch]
        self._refuse(not state.is_read, f"post_read of {state.name}, which it does not read")
        state.is_read = False

    def begin_update(self, batch: int) -> None:
        """Check that the update buffer may be given out. Raises CommError: the caller holds it already, or the batch
        was updated in this iteration."""
        state = self._batches[batch]
        self._refuse(self._has_left, "updates after it has left")
        self._refuse(state.is_open, f"pre_update of {state.name} again before update")
        is_read = state.is_local and state.is_read
        self._refuse(is_read, f"pre_update of {state.name} before post_read gives its buffer back")
        is_second = not state.is_local and state.updated == self.clock
        self._refuse(is_second, f"updates {state.name} twice in one iteration")

    def is_free(self, batch: int) -> bool:
        return self._batches[batch].n_unreleased == 0

    def opened_update(self, batch: int) -> None:
        self._batches[batch].is_open = True

    def end_update(self, batch: int, settings: Settings) -> list[tuple[int, ToShard]]:
        """Take the filled update buffer back from the caller. Returns (shard, message) pairs to send. Raises CommError:
        the caller holds no update buffer of this batch."""
        state = self._batches[batch]
        self._refuse(not state.is_open, f"update of {state.name} without pre_update")
        is_reading = not self._slack and not state.is_local and state.is_read
        self._refuse(is_reading, f"updates {state.name} while it reads it; post_read comes first")
        state.is_open, state.updated, state.n_unreleased = False, self.clock, len(state.shards)
        return [(shard, Update(self.worker, batch, self.clock, settings)) for shard in state.shards]

    def advance(self) -> list[tuple[int, ToShard]]:
        """End this iteration, and prefetch for the next one every batch that was read in it, in that order. Returns
        (shard, message) pairs to send. Raises CommError: the caller still holds a buffer."""
        for state in self._batches:
            self._refuse(state.is_read, f"ends an iteration while it reads {state.name}; post_read comes first")
            self._refuse(state.is_open, f"ends an iteration with the update of {state.name} open; update comes first")
        messages: list[tuple[int, ToShard]] = [(s, Clock(self.worker, self.clock)) for s in range(self._n_shards)]
        self.clock += 1
        read, self._reads = self._reads, []
        return messages + self.prefetch(read)

    def leave(self) -> list[tuple[int, ToShard]]:
        """Stop taking part. Returns the (shard, message) pairs that tell the shards not to wait for this worker; none
        if it has left already."""
        if self._has_left:
            return []
        self._has_left = True
        return [(shard, WorkerLeft(self.worker)) for shard in range(self._n_shards)]

    def handle(self, shard: int, message: ToWorker) -> None:
        state = self._batches[message.batch]
        if isinstance(message, Ready):
            if message.clock == state.asked:  # else it answers a prefetch that was never used
                state.ages[shard] = message.age
        else:
            state.n_unreleased -= 1

    def _refuse(self, is_wrong: bool, what: str) -> None:
        if is_wrong:
            raise CommError(f"worker {self.worker} {what}")
