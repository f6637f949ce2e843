"""What one worker may do when, and what it tells the shards: a pure state machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scaffe.collectives.errors import CommError
from scaffe.collectives.server.messages import Clock, Leave, Read, Ready, Settings, ToShard, ToWorker, Update


@dataclass
class _Batch:
    shards: tuple[int, ...]
    asked: int = -1  # the last iteration in which a read was asked for
    read: int = -1  # the last iteration with a read
    ages: dict[int, int] = field(default_factory=dict)  # by shard, the answers of that iteration
    is_read: bool = False  # the read buffer is the caller's
    is_open: bool = False  # the update buffer is the caller's
    n_unreleased: int = 0  # shards that have not applied the last update yet
    updated: int = -1  # the last iteration with an update


class Client:
    """The state of one worker.

    Args:
        worker: its number.
        shards: for each batch, the shards that hold some of its rows.
        n_shards: how many there are.
        slack: as the keepers have it.

    Attributes:
        clock: finished iterations.
        staleness: for each read, how many iterations the slowest worker was behind this one.
    """

    def __init__(self, worker: int, shards: Sequence[tuple[int, ...]], n_shards: int, slack: float) -> None:
        self.worker, self.clock, self._slack = worker, 0, slack
        self.staleness: list[int] = []
        self._n_shards, self._has_left = n_shards, False
        self._batches = [_Batch(of) for of in shards]

    def ask(self, batch: int) -> list[tuple[int, ToShard]]:
        """The messages, by shard, that ask for a batch's rows; none where they were asked for in this iteration."""
        state = self._batches[batch]
        if state.asked == self.clock:
            return []
        state.asked, state.ages = self.clock, {}
        return [(shard, Read(self.worker, batch, self.clock)) for shard in state.shards]

    def is_ready(self, batch: int) -> bool:
        """Whether all shards have said that the rows may be read."""
        state = self._batches[batch]
        return state.asked == self.clock and len(state.ages) == len(state.shards)

    def begin_read(self, batch: int) -> None:
        """Before a read. Raises CommError where the batch is being read, or was updated in this iteration already."""
        state = self._batches[batch]
        self._refuse(self._has_left, "reads after it has left")
        self._refuse(state.is_read, f"reads batch {batch} again before post_read")
        self._refuse(not self._slack and state.updated == self.clock,
                     f"reads batch {batch} after it has updated it in the same iteration; slack 0 allows no such read")

    def opened_read(self, batch: int) -> None:
        """The rows are the caller's until ``end_read``."""
        state = self._batches[batch]
        state.is_read, state.read = True, self.clock
        self.staleness.append(max(self.clock - min(state.ages.values()), 0))

    def end_read(self, batch: int) -> None:
        """The caller has done with the rows. Raises CommError where it had none."""
        self._refuse(not self._batches[batch].is_read, f"post_read of batch {batch}, which it does not read")
        self._batches[batch].is_read = False

    def begin_update(self, batch: int) -> None:
        """Before an update buffer is given out. Raises CommError where it is out, or one was sent in this iteration."""
        state = self._batches[batch]
        self._refuse(self._has_left, "updates after it has left")
        self._refuse(state.is_open, f"pre_update of batch {batch} again before update")
        self._refuse(state.updated == self.clock, f"updates batch {batch} twice in one iteration")

    def is_free(self, batch: int) -> bool:
        """Whether the last update of the batch has been applied, so that its buffer may be given out."""
        return self._batches[batch].n_unreleased == 0

    def opened_update(self, batch: int) -> None:
        """The update buffer is the caller's until ``end_update``."""
        self._batches[batch].is_open = True

    def end_update(self, batch: int, settings: Settings) -> list[tuple[int, ToShard]]:
        """The messages, by shard, that send an update off. Raises CommError where no buffer is out."""
        state = self._batches[batch]
        self._refuse(not state.is_open, f"update of batch {batch} without pre_update")
        is_reading = not self._slack and state.is_read
        self._refuse(is_reading, f"updates batch {batch} while it reads it; post_read comes first")
        state.is_open, state.updated, state.n_unreleased = False, self.clock, len(state.shards)
        return [(shard, Update(self.worker, batch, self.clock, settings)) for shard in state.shards]

    def advance(self) -> list[tuple[int, ToShard]]:
        """End this iteration: the messages, by shard, with questions for all that was read in it (prefetching).

        Raises CommError where a buffer is still out.
        """
        for batch, state in enumerate(self._batches):
            self._refuse(state.is_read, f"ends an iteration while it reads batch {batch}; post_read comes first")
            self._refuse(state.is_open, f"ends an iteration with batch {batch}'s update open; update comes first")
        read = [batch for batch, state in enumerate(self._batches) if state.read == self.clock]
        messages: list[tuple[int, ToShard]] = [(s, Clock(self.worker, self.clock)) for s in range(self._n_shards)]
        self.clock += 1
        for batch in read:
            messages += self.ask(batch)
        return messages

    def leave(self) -> list[tuple[int, ToShard]]:
        """The messages, by shard, that say that nobody is to wait for this worker any more."""
        self._has_left = True
        return [(shard, Leave(self.worker)) for shard in range(self._n_shards)]

    def handle(self, shard: int, message: ToWorker) -> None:
        """Take a shard's message in."""
        state = self._batches[message.batch]
        if isinstance(message, Ready):
            if message.clock == state.asked:  # else the answer to a question that nobody used
                state.ages[shard] = message.age
        else:
            state.n_unreleased -= 1

    def _refuse(self, is_wrong: bool, what: str) -> None:
        if is_wrong:
            raise CommError(f"worker {self.worker} {what}")
