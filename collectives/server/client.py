"""One worker's state machine: which calls are allowed when, and which messages go to the shards. Pure, no I/O."""

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
    is_read: bool = False  # the caller holds the read buffer
    is_open: bool = False  # the caller holds the update buffer
    n_unreleased: int = 0  # shards that have not applied the last update yet
    updated: int = -1  # the last iteration with an update


class Client:
    """The state of one worker.

    Args:
        worker: its number.
        shards: for each batch, the shards that hold some of its rows.
        n_shards: number of shards.
        slack: iterations that a worker may be ahead of the slowest; the same value as in every ``Keeper``.

    Attributes:
        clock: number of iterations this worker has finished.
        staleness: for each read so far, how many iterations the slowest worker was behind this one.
    """

    def __init__(self, worker: int, shards: Sequence[tuple[int, ...]], n_shards: int, slack: float) -> None:
        self.worker, self.clock, self._slack = worker, 0, slack
        self.staleness: list[int] = []
        self._n_shards, self._has_left = n_shards, False
        self._batches = [_Batch(of) for of in shards]

    def ask(self, batch: int) -> list[tuple[int, ToShard]]:
        """Ask for a batch's rows.

        Returns:
            (shard, message) pairs to send; empty if the rows were asked for in this iteration already.
        """
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
        """Check that a read may begin. Raises CommError if the batch is being read or was updated this iteration."""
        state = self._batches[batch]
        self._refuse(self._has_left, "reads after it has left")
        self._refuse(state.is_read, f"reads batch {batch} again before post_read")
        self._refuse(not self._slack and state.updated == self.clock,
                     f"reads batch {batch} after it has updated it in the same iteration; slack 0 allows no such read")

    def opened_read(self, batch: int) -> None:
        """Note that the caller holds the rows, until ``end_read``."""
        state = self._batches[batch]
        state.is_read, state.read = True, self.clock
        self.staleness.append(max(self.clock - min(state.ages.values()), 0))

    def end_read(self, batch: int) -> None:
        """Note that the caller is done with the rows. Raises CommError if it held none."""
        self._refuse(not self._batches[batch].is_read, f"post_read of batch {batch}, which it does not read")
        self._batches[batch].is_read = False

    def begin_update(self, batch: int) -> None:
        """Check that the update buffer may be given out.

        Raises:
            CommError: the caller holds it already, or the batch was updated in this iteration.
        """
        state = self._batches[batch]
        self._refuse(self._has_left, "updates after it has left")
        self._refuse(state.is_open, f"pre_update of batch {batch} again before update")
        self._refuse(state.updated == self.clock, f"updates batch {batch} twice in one iteration")

    def is_free(self, batch: int) -> bool:
        """Whether the last update of the batch has been applied, so that its buffer may be given out."""
        return self._batches[batch].n_unreleased == 0

    def opened_update(self, batch: int) -> None:
        """Note that the caller holds the update buffer, until ``end_update``."""
        self._batches[batch].is_open = True

    def end_update(self, batch: int, settings: Settings) -> list[tuple[int, ToShard]]:
        """Take the filled update buffer back from the caller.

        Args:
            batch: the batch's number.
            settings: the update's rate and iteration.

        Returns:
            (shard, message) pairs to send.

        Raises:
            CommError: the caller holds no update buffer of this batch.
        """
        state = self._batches[batch]
        self._refuse(not state.is_open, f"update of batch {batch} without pre_update")
        is_reading = not self._slack and state.is_read
        self._refuse(is_reading, f"updates batch {batch} while it reads it; post_read comes first")
        state.is_open, state.updated, state.n_unreleased = False, self.clock, len(state.shards)
        return [(shard, Update(self.worker, batch, self.clock, settings)) for shard in state.shards]

    def advance(self) -> list[tuple[int, ToShard]]:
        """End this iteration, and prefetch for the next one every batch that was read in it.

        Returns:
            (shard, message) pairs to send.

        Raises:
            CommError: the caller still holds a buffer.
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
        """Stop taking part. Returns the (shard, message) pairs that tell the shards not to wait for this worker."""
        self._has_left = True
        return [(shard, Leave(self.worker)) for shard in range(self._n_shards)]

    def handle(self, shard: int, message: ToWorker) -> None:
        """Update the state from a message that ``shard`` sent."""
        state = self._batches[message.batch]
        if isinstance(message, Ready):
            if message.clock == state.asked:  # else it answers a prefetch that was never used
                state.ages[shard] = message.age
        else:
            state.n_unreleased -= 1

    def _refuse(self, is_wrong: bool, what: str) -> None:
        if is_wrong:
            raise CommError(f"worker {self.worker} {what}")
