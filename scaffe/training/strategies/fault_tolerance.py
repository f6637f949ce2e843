"""What is left when a rank is lost, and who gives what to those that go on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.training.fault_tolerance.recoverable import Part, neighbours, parts
from scaffe.training.fault_tolerance.replacement import keeps_copies
from scaffe.training.strategies.roles import Replica
from scaffe.training.strategies.state_placement import StatePlacement
from scaffe.training.updater import filled, updater_parts


class FaultTolerance:
    """Training ends when a rank is lost.

    Attributes:
        why_not_fault_tolerant: says why training ends with a lost rank; empty where it continues.
        recovers_in_place: whether the strategy continues by itself, and calls ``on_shrink``; otherwise the ranks that
            are left build a new solver.
        counts_updates: whether all ranks make each update together, so that recovery counts updates.
        on_shrink: called with a communicator of the workers that are left, where the strategy recovers in place.
    """

    why_not_fault_tolerant: ClassVar[str] = (
        "this strategy ends when a rank is lost; sc-b, sc-ob, sc-obr, sc-rs, ssp, downpour and sandblaster go on")
    recovers_in_place: ClassVar[bool] = False
    counts_updates: ClassVar[bool] = True

    @classmethod
    def why_no_replacement(cls, options: Any) -> str:
        """Why no ranks can join for lost ones, with these options; empty where they can."""
        return ""

    def __init__(self, replica: Replica, state: StatePlacement) -> None:
        self.replica, self.state = replica, state
        self.on_shrink: Callable[[Communicator], None] = lambda workers: None

    def guard(self, call: Callable[[], None]) -> None:
        """Run an observer's method; where the strategy recovers in place, again if a rank is lost meanwhile.
        ``call`` may synchronize parameters, and then act together with the other ranks."""
        call()

    def abandon(self) -> None:
        """After a loss, before anything else: end what this rank does for others, waiting for nobody."""

    def recovery_sources(self, left: Collection[int], communicator: Communicator) -> list[Part]:
        """After a loss: who gives which part of parameters and histories. Called by all ranks that are left.
        ``left``: those, by their old numbers, ascending."""
        raise NotImplementedError

    def recovery_values(self, part: Part) -> tuple[np.ndarray, list[np.ndarray]]:
        """What this rank gives as a part: parameters and, where the part is whole, histories; flat.
        ``part``: one of ``recovery_sources``, of which this rank is the giver."""
        raise NotImplementedError


class SynchronousFaultTolerance(FaultTolerance):
    """The ranks that are left build a new solver. Each part comes from its owner, or from the owner's neighbour, which
    may keep a second copy (``-history_copies``)."""

    why_not_fault_tolerant = ""

    def recovery_sources(self, left: Collection[int], communicator: Communicator) -> list[Part]:
        ranks = self.replica.communicator
        copied_to = neighbours(ranks.topology.nodes) if keeps_copies(self.replica.options) else ()
        return parts(self.state.owned_by, ranks.n_ranks, left, copied_to)

    def recovery_values(self, part: Part) -> tuple[np.ndarray, list[np.ndarray]]:
        updater, place = self.replica.updater, part.interval
        histories = [filled(place, updater_parts(updater, index, with_copies=True))
                     for index in range(updater.rule.n_histories if part.is_whole else 0)]
        return self.replica.net.params.data[place], histories
