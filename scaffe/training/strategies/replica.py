"""Replica: what a strategy trains; and the sums within a replica, which come before those over replicas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.nets.net import Net
from scaffe.training.partition.division import Division
from scaffe.training.strategies.roles import Role
from scaffe.training.timers import Timers
from scaffe.training.updater import Updater


class IntraReplica:
    """Intra-replica reduction where a replica is one rank: nothing to sum, gradients are complete after backward.

    Attributes:
        acts: whether it is to be called after layers.
    """

    acts = False

    def completed(self, layer_index: int) -> Sequence[int]:
        """Called when backward has computed a layer's gradients. Returns the layers whose sums are complete now."""
        return (layer_index,)

    def finish(self) -> Sequence[int]:
        """Wait for all sums. Returns the layers that no ``completed`` has returned, in backward's order."""
        return ()

    def broadcast_frozen(self) -> None:
        """Give all ranks of the replica what gradients never change (BatchNorm's statistics)."""

    def weighted(self, places: Sequence[slice]) -> Iterator[tuple[float, slice]]:
        """Intervals of the gradients, each with its weight in a sum over the ranks of the replica that is to count
        every gradient once."""
        yield from ((1.0, place) for place in places)

    def sum_of_squares(self, gradient: np.ndarray) -> float | None:
        """Of the replica's whole gradient, for clipping. Called by all its ranks. None where the rank has the whole
        gradient."""
        return None


def squares(gradient: np.ndarray, weighted: Iterable[tuple[float, slice]]) -> float:
    """The sum of a flat gradient's squares over intervals with weights."""
    return sum(weight * float(np.dot(gradient[place], gradient[place])) for weight, place in weighted)


@dataclass
class Replica:
    """What a strategy trains: this rank's net, its updater, and the way to the other ranks.

    Attributes:
        communicator: the workers, the ranks that hold nets; where ranks share a net, those with the same part of it.
        iter_size: passes whose gradients are accumulated for one update.
        algorithm: the collective algorithm that sums gradients ("mpi", "CB-8", "auto"); it also sends parameters if it
            can.
        intra_replica: sums gradients over the ranks that share the net, before they are summed over ``communicator``.
    """

    net: Net
    updater: Updater
    communicator: Communicator
    timers: Timers
    iter_size: int = 1
    algorithm: str = "auto"
    options: Any = None
    role: Role | None = None
    intra_replica: IntraReplica = field(default_factory=IntraReplica)

    @property
    def division(self) -> Division | None:
        """How ranks share nets; None: every worker has a whole one."""
        return None if self.role is None else self.role.division

    @property
    def workers(self) -> Communicator:
        """All ranks that hold nets, or parts of them."""
        return self.communicator if self.role is None or self.division is None else self.role.ranks

    @property
    def world(self) -> Communicator:
        """All ranks that hold these parameters, those without a net included: all of the job where none share nets."""
        return self.communicator if self.role is None or self.division is not None else self.role.world

    @property
    def sum_algorithm(self) -> str:
        """The algorithm that sums gradients, with ``:fp16`` or ``:bf16`` if ``-wire`` asks for half precision."""
        wire = getattr(self.options, "wire", "")
        return f"{self.algorithm}:{wire}" if wire else self.algorithm

    def algorithm_for(self, collective: str) -> str:
        """The algorithm for a collective that sends parameters: "auto" if the one given cannot run it."""
        return self.algorithm if self.communicator.algorithms.can(collective, self.algorithm) else "auto"
