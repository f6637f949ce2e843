"""What a rank does in training, and which part of the data it reads: decided before nets are built."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import RankLost
from scaffe.collectives.failure import report_and_abort
from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import is_expected
from scaffe.training.partition.division import Division

WORKER, SERVER = "worker", "server"


@dataclass(frozen=True)
class Role:
    """What one rank does.

    Attributes:
        kind: "worker": it holds a replica of the net, or a part of one, and trains it; "server": it holds parameters
            for the workers, builds no net and reads no data.
        replica: the number of its replica; of a server, its number among the servers.
        n_replicas: how many replicas there are.
        share: which part of the data its replica reads.
        ranks: the ranks of its kind.
        world: all ranks of the job.
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
            communicator: the workers.
            options: the command line's; its ``scal`` says whether the batch is shared out.
            world: all ranks of the job, if some are no workers.
        """
        share = Share(communicator.rank, communicator.n_ranks, weak=getattr(options, "scal", "strong") == "weak")
        return cls(WORKER, communicator.rank, communicator.n_ranks, share, communicator, world or communicator)

    def divided(self, division: Division) -> Role:
        """The same, where ranks share nets."""
        share = replace(self.share, sharing=division.plan.n_partitions)
        return replace(self, division=division, share=share)

    @contextmanager
    def ending_all(self, tolerates_rank_loss: bool = False) -> Iterator[None]:
        """An expected error within, which ranks of one kind share, ends those of the other kind too.

        Args:
            tolerates_rank_loss: not the loss of a rank, of which those of the other kind hear by themselves.
        """
        try:
            yield
        except Exception as error:
            is_outlived = tolerates_rank_loss and isinstance(error, RankLost)
            if is_expected(error) and not is_outlived and self.ranks.n_ranks < self.world.n_ranks:
                report_and_abort(self.world, error)
            raise
