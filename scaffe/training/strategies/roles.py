"""What each rank does in training, decided before nets are built, and what a strategy trains there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import RankLost
from scaffe.collectives.failure import report_and_abort
from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import is_expected
from scaffe.flags import Flags
from scaffe.nets.net import Net
from scaffe.training.fault_tolerance.recoverable import RecoverableRank
from scaffe.training.partition.division import Division
from scaffe.training.timers import Timers
from scaffe.training.updater import Updater

WORKER, SERVER = "worker", "server"


@dataclass(frozen=True)
class Role:
    """What one rank does.

    Attributes:
        kind: "worker": it holds a replica of the net, or a part of one, and trains it; "server": it holds parameters
            for the workers, builds no net and reads no data.
        replica: the number of its replica; of a server, its number among the servers.
        division: how ranks share nets; None: every worker has a whole one.
    """

    kind: str
    replica: int
    n_replicas: int
    share: Share
    ranks: Communicator
    world: Communicator
    division: Division | None = None

    @classmethod
    def worker(cls, communicator: Communicator, options: Any = None, world: Communicator | None = None) -> Role:
        """A worker whose net is a replica of its own, and whose share of the data is that of its rank.

        Args:
            options: the command line's; its ``scal`` says whether the batch is shared out.
            world: all ranks of the job, if some are no workers.
        """
        share = Share(communicator.rank, communicator.n_ranks, weak=getattr(options, "scal", "strong") == "weak")
        return cls(WORKER, communicator.rank, communicator.n_ranks, share, communicator, world or communicator)

    def divided(self, division: Division) -> Role:
        share = replace(self.share, sharing=division.plan.n_partitions)
        return replace(self, division=division, share=share)

    @contextmanager
    def ending_all(self, tolerates_rank_loss: bool = False) -> Iterator[None]:
        """Have an expected error in the with-block end the ranks of the other kind too. ``tolerates_rank_loss``:
        whether the loss of a rank is no such error: the other kind hears of it by itself."""
        try:
            yield
        except Exception as error:
            is_outlived = tolerates_rank_loss and isinstance(error, RankLost)
            if is_expected(error) and not is_outlived and self.ranks.n_ranks < self.world.n_ranks:
                report_and_abort(self.world, error)
            raise


class Roles:
    """What a strategy's ranks do, decided before nets are built. By default every rank is a worker with a whole net.

    Args:
        add_flags: each adds flags of the strategy to those of ``train``; their values come as ``replica.options``. Two
            strategies may share a flag: both add it, with the same words.
        trains_parts: whether ranks may share nets (``-partitions``).
        solver_type: the one type of solver that the strategy carries out; empty for those whose update rule needs a
            gradient alone.
    """

    def __init__(self, *add_flags: Callable[[Flags], None], trains_parts: bool = False, solver_type: str = "") -> None:
        self._add_flags, self.trains_parts, self.solver_type = add_flags, trains_parts, solver_type

    def flags(self, flags: Flags) -> None:
        for add in self._add_flags:
            add(flags)

    def place(self, communicator: Communicator, options: Any) -> Role:
        """Give this rank its role, with its share of the data. Called by all ranks.
        Raises ExpectedError on all ranks, if the options do not fit the ranks."""
        return Role.worker(communicator, options)

    def options_for(self, options: Any, kinds: Sequence[str | None]) -> Any:
        """The options with which ranks are placed after a loss, or after others have joined. Raises ExpectedError on
        all ranks, which cannot train.

        Args:
            kinds: what each of these ranks was, as a Role has it; None for one that has just joined.
        """
        return options

    def serve(self, role: Role, param: Any, options: Any) -> int:
        """Take part in training as a rank that is no worker, until it ends. Returns the exit code."""
        raise NotImplementedError

    def server(self, role: Role, param: Any, options: Any) -> RecoverableRank:
        raise NotImplementedError


def place_servers(communicator: Communicator, options: Any, n_servers: int) -> Role:
    """Make the last ranks servers, which have no net, and the others workers. Called by all ranks. ``n_servers``: at
    least 1, and fewer than there are ranks."""
    n_workers = communicator.n_ranks - n_servers
    is_worker = communicator.rank < n_workers
    ranks = communicator.split(0 if is_worker else 1) or communicator
    if is_worker:
        return Role.worker(ranks, options, communicator)
    return Role(SERVER, ranks.rank, n_workers, Share(), ranks, communicator)


class IntraReplica:
    """Intra-replica reduction where a replica is one rank: nothing to sum, gradients are complete after backward.
    ``acts``: whether it is to be called after layers."""

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
