"""What a strategy trains: one rank's net, its updater, and the way to the other ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scaffe.collectives.communicator import Communicator
from scaffe.nets.net import Net
from scaffe.training.partition.division import Division
from scaffe.training.strategies.role import Role
from scaffe.training.strategies.within import Alone
from scaffe.training.timers import Timers
from scaffe.training.updater import Updater


@dataclass
class Replica:
    """What a strategy trains: this rank's net, its updater, and the way to the other ranks.

    Attributes:
        net, updater, timers: this rank's.
        communicator: the workers, the ranks that hold nets; where ranks share a net, those with the same part of it.
        iter_size: passes whose gradients are accumulated for one update.
        algorithm: the collective algorithm that sums gradients ("mpi", "CB-8", "auto"); it also sends parameters if it
            can.
        options: the command line's other options, by name.
        role: what this rank does; None for a worker among workers.
        within: sums gradients over the ranks that share the net, before they are summed over ``communicator``.
    """

    net: Net
    updater: Updater
    communicator: Communicator
    timers: Timers
    iter_size: int = 1
    algorithm: str = "auto"
    options: Any = None
    role: Role | None = None
    within: Alone = field(default_factory=Alone)

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
        return self.algorithm if self.communicator.can(collective, self.algorithm) else "auto"
