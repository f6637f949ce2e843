"""Roles: what each rank does in training, and which part of the data it reads; decided before nets are built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import RankLost
from scaffe.collectives.failure import report_and_abort
from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import is_expected
from scaffe.flags import Flags
from scaffe.training.fault_tolerance.recoverable import RecoverableRank
from scaffe.training.partition.division import Division

WORKER, SERVER = "worker", "server"


@dataclass(frozen=True)
class Role:
    """What one rank does.

    Attributes:
        kind: "worker": it holds a replica of the net, or a part of one, and trains it; "server": it holds parameters
            for the workers, builds no net and reads no data.
        replica: the number of its replica; of a server, its number among the servers.
        share: which part of the data its replica reads.
        ranks: the ranks of its kind.
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
        """The options with which ranks are placed after a loss, or after others have joined.

        Args:
            kinds: what each of these ranks was, as a Role has it; None for one that has just joined.

        Raises:
            ExpectedError: on all ranks, which cannot train.
        """
        return options

    def serve(self, role: Role, param: Any, options: Any) -> int:
        """Take part in training as a rank that is no worker, until it ends. Returns the exit code."""
        raise NotImplementedError

    def server(self, role: Role, param: Any, options: Any) -> RecoverableRank:
        """Make what such a rank is where ranks may be lost; arguments as for ``serve``."""
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
