"""The flags of strategies whose parameters lie on a parameter server, and what they mean for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scaffe.flags import MOST_RANKS, Flags, whole

SLACK = whole(0, inf=math.inf)  # iterations


@dataclass(frozen=True)
class Consistency:
    """How the server is to keep the parameters.

    Attributes:
        slack: iterations that a worker may be ahead of the slowest; math.inf for no limit.
        n_servers: how many ranks hold shards alone; with 0 every rank is a worker and holds a shard.
        decays: whether the shards add the weight decay to the gradients, and make means of the sums of ``iter_size``
            passes; if not, the workers have done both.
        keeps_copies: whether shards' histories have second copies on other nodes.
    """

    slack: float
    n_servers: int
    decays: bool = True
    keeps_copies: bool = False

    def n_summed(self, n_workers: int) -> int:
        """How many workers' gradients one update of the parameters sums: all with slack 0, else one."""
        return 1 if self.slack else n_workers


def add_servers_flag(flags: Flags) -> None:
    """Add ``-servers``."""
    flags.flag("servers", 0, "the last N ranks have no net", kind=whole(0, MOST_RANKS))
