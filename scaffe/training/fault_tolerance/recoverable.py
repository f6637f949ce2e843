"""What recovery needs of a rank, which rank gives which part of the state, and how it passes to those that are left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.training.fault_tolerance.recovery_state_machine import RecoveryStateMachine


@dataclass(frozen=True)
class Part:
    """An interval of the flat buffers, and the rank that gives it.

    Attributes:
        is_whole: whether the giver has the newest parameters and their histories; if not, it has parameters that are at
            most one update old, and no histories.
        is_old: whether it is whole, but the parameters are as the giver's node has pulled them last, and the histories
            a second copy that may be some updates old.
    """

    interval: slice
    giver: int
    is_whole: bool
    is_old: bool = False


def neighbours(nodes: Sequence[Sequence[int]]) -> list[int]:
    """For each rank the one that keeps a second copy of what it owns: on the next node, where there is another one.
    ``nodes``: the ranks of each, ascending."""
    if len(nodes) == 1:
        return [(rank + 1) % len(nodes[0]) for rank in nodes[0]]
    found = {rank: following[place % len(following)]
             for node, following in zip(nodes, [*nodes[1:], nodes[0]], strict=True) for place, rank in enumerate(node)}
    return [found[rank] for rank in sorted(found)]


def parts(owned_by: Callable[[int], Sequence[slice]], n_ranks: int, left: Collection[int],
          copied_to: Sequence[int] = ()) -> list[Part]:
    """The parts that make up parameters and histories: one for each interval that is not empty, in the ranks' order.

    Args:
        owned_by: the intervals that a rank owned.
        copied_to: the rank that keeps a copy of what each rank owns; empty where none does.
    """
    found = []
    for rank in range(n_ranks):
        holders = [rank, *copied_to[rank : rank + 1]]
        holder = next((holder for holder in holders if holder in left), None)
        for interval in owned_by(rank):
            if interval.start < interval.stop:
                found.append(Part(interval, min(left) if holder is None else holder, holder is not None))
    return found


Given = tuple[np.ndarray, Sequence[np.ndarray]]
"""Of a part: parameters and, where it is whole, histories; flat."""


@dataclass(frozen=True)
class Progress:
    """How far a rank that trains has come, and what its flat buffers are like.

    Attributes:
        batches_read: of the training data; None where nothing is read.
        dtype, n_histories: of the parameters; of the update rule.
    """

    iteration: int
    rates: Any
    batches_read: int | None
    dtype: str
    n_histories: int


class RecoverableRank:
    """What a rank is from one loss to the next: a trainer, or a server. ``machine``: says what the rank does when
    another is lost."""

    kind: str
    world: Communicator
    machine: RecoveryStateMachine

    @property
    def iteration(self) -> int:
        return 0

    def run(self, are_ranks_ready: Callable[[], bool]) -> None:
        """Train to the end, or serve those that do.

        Raises:
            RankLost: one is lost.
            RanksReady: others are to join now.
        """
        raise NotImplementedError

    def update(self) -> None:
        """Make the update for which this rank has all gradients."""

    def abandon(self) -> None:
        """After a loss, before anything else: end what runs on this rank, waiting for nobody."""

    def close(self) -> None:
        """Once, after training."""

    def progress(self) -> Progress | None:
        """How far this rank has come; None where it does not train."""
        return None

    def recovery_sources(self, left: Collection[int], communicator: Communicator) -> list[Part]:
        """See FaultTolerance; the first rank's answer counts."""
        raise NotImplementedError

    def recovery_values(self, part: Part) -> Given:
        """See FaultTolerance."""
        raise NotImplementedError

    def follow(self, old: Any, progress: Progress) -> None:
        """Continue where the slowest rank was."""

    def load_saved_histories(self) -> None:
        """Load the newest snapshot's histories, where an owner and its second copy are both lost."""

    def load(self, part: Part, given: Given | None, root: int, progress: Progress) -> None:
        """Take a part of parameters and histories. Called by all ranks. ``given``: its arrays, on root."""

    def say_shares(self) -> None:
        """Log the global batch of the ranks that are left."""


def take_over(new: RecoverableRank, old: RecoverableRank | None) -> None:
    """Give every rank the whole state of those that are left. Called by all of them, after the same update.

    Args:
        new: what this rank is from now on, not yet running.
        old: what it was, among all ranks that there were; None where it has just joined.
    """
    ranks = new.world
    numbers = ranks.allgather_objects(None if old is None else old.world.rank)
    left = [number for number in numbers if number is not None]
    giving = ranks.split(None if old is None else 0)  # ranks that have just joined are in no communicator of the rest
    found = ranks.bcast_object(None if old is None or giving is None else old.recovery_sources(left, giving))
    everyone = ranks.allgather_objects(None if old is None else old.progress())
    progress = min(filter(None, everyone), key=lambda progress: progress.iteration)
    new.follow(old, progress)
    if progress.n_histories and not all(part.is_whole for part in found):
        new.load_saved_histories()
    for part in found:
        is_giver = old is not None and old.world.rank == part.giver
        new.load(part, old.recovery_values(part) if is_giver and old is not None else None, numbers.index(part.giver),
                 progress)
