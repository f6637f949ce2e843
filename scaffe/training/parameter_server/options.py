"""Options of strategies on a parameter server, and their staleness statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scaffe.collectives.server.memory.common import RESIDENT_BYTES
from scaffe.collectives.server.memory.layout import mail_slots
from scaffe.collectives.server.protocol.mailbox import mailbox_bytes
from scaffe.collectives.server.tables.roles import Roles
from scaffe.flags import MOST_RANKS, Flags, whole
from scaffe.training.strategies.roles import Replica
from scaffe.training.strategies.transfers import Bucket

SLACK = whole(0, inf=math.inf)  # iterations


@dataclass(frozen=True)
class Consistency:
    """The consistency that the server keeps.

    Attributes:
        slack: iterations that a worker may be ahead of the slowest; math.inf for no limit.
        n_servers: how many ranks hold shards alone; with 0 every rank is a worker and holds a shard.
        decays: whether the shards add the weight decay to the gradients, and make means of the sums of ``iter_size``
            passes; if not, the workers have done both.
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
    flags.flag("servers", 0, "N ranks that only hold parameters", kind=whole(0, MOST_RANKS))


@dataclass
class StalenessStatistics:
    """What one worker has pulled and pushed, how stale it was, and how long it waited.

    Attributes:
        n_pulls, n_pushes: tables read from the shards, and gradients handed to them.
        staleness: clocks by which the slowest worker was behind the reader, summed over the pulls.
        computing, waiting: seconds in passes and data, and seconds waiting for parameters and for buffers.
        elapsed: seconds since the start, tests and snapshots left out.
    """

    n_pulls: int = 0
    n_pushes: int = 0
    staleness: int = 0
    stalest: int = 0
    computing: float = 0.0
    waiting: float = 0.0
    elapsed: float = 0.0

    def pulled(self, staleness: int) -> None:
        self.n_pulls += 1
        self.staleness += staleness
        self.stalest = max(self.stalest, staleness)

    def pushed(self) -> None:
        self.n_pushes += 1


def summary(workers: Sequence[StalenessStatistics], shards: Sequence[tuple[int, int]]) -> list[str]:
    """The statistics as lines of the log.
    ``shards``: for each how many pulls and pushes it has taken."""
    n_pulls, n_pushes = sum(w.n_pulls for w in workers), sum(w.n_pushes for w in workers)
    elapsed = max(max(w.elapsed for w in workers), 1e-9)
    stale = sum(w.staleness for w in workers) / max(n_pulls, 1)
    waiting = sum(w.waiting for w in workers) / max(sum(w.elapsed for w in workers), 1e-9)
    slowest = max(range(len(workers)), key=lambda i: workers[i].computing)
    mean = sum(w.computing for w in workers) / len(workers)
    return [f"Staleness: {stale:.2f} clocks on average, {max(w.stalest for w in workers)} at most; "
            f"{waiting:.1%} of the workers' time waiting",
            f"Server: {n_pulls / elapsed:.0f} pulls and {n_pushes / elapsed:.0f} pushes a second; slowest worker "
            f"{slowest}, computing for {workers[slowest].computing:.1f} s, the mean is {mean:.1f} s",
            "Shards, pulls and pushes a second: "
            + ", ".join(f"{pulls / elapsed:.0f} and {pushes / elapsed:.0f}" for pulls, pushes in shards)]


@dataclass(frozen=True)
class MemoryAccounting:
    """Bytes that the parameter server takes on a worker and on a server. The same on all ranks of a run.

    Attributes:
        n_tables, n_bytes: how many tables there are, and the bytes of their values.
        in_file: whether they lie in a file, so that only a piece of each array in use is in memory.
    """

    how: Consistency
    roles: Roles
    n_tables: int
    n_bytes: int
    n_histories: int
    in_file: bool

    @classmethod
    def of(cls, replica: Replica, how: Consistency, buckets: Sequence[Bucket], in_file: bool) -> MemoryAccounting:
        n_bytes = sum(each.place.stop - each.place.start for each in buckets) * replica.net.params.dtype.itemsize
        roles = Roles.of(replica.world.topology, how.n_servers)
        return cls(how, roles, len(buckets), n_bytes, replica.updater.rule.n_histories, in_file)

    def of_worker(self, on_device: bool) -> int:
        """Bytes on a worker: buffers for pushes, and for pulls where these are copies (with slack, or on a device). On
        the host, where workers hold the shards, also its shard with histories, and second copies of others."""
        if on_device:
            return 2 * self.n_bytes
        n_workers = len(self.roles.workers)
        share = 0 if self.how.n_servers else self._share
        copies = self._copies * -(-self.n_bytes // n_workers)
        whole = (1 + bool(self.how.slack)) * self.n_bytes + (1 + self.n_histories) * share + copies
        pieces = min(RESIDENT_BYTES, self.n_bytes) + (1 + self.n_histories + n_workers) * min(RESIDENT_BYTES, share)
        return min(whole, pieces) if self.in_file else whole

    def of_server(self) -> int:
        """Bytes on a rank that is a server alone: its shard, the histories, each worker's updates, second copies of
        another's histories, and the mailboxes of its node. 0 without such ranks."""
        if not self.how.n_servers:
            return 0
        n_arrays = 1 + self.n_histories + len(self.roles.workers) + self._copies
        shard = n_arrays * (min(RESIDENT_BYTES, self._share) if self.in_file else self._share)
        n_boxes = max(map(len, self.roles.topology.nodes)) * (1 + (self.roles.topology.n_nodes > 1))
        slots = mail_slots(self.roles, [range(self.n_tables)] * len(self.roles.workers))
        return shard + n_boxes * mailbox_bytes(slots)

    @property
    def _share(self) -> int:
        return -(-self.n_bytes // len(self.roles.shards))

    @property
    def _copies(self) -> int:
        return self.n_histories * (self.how.keeps_copies and self.roles.topology.n_nodes > 1)
