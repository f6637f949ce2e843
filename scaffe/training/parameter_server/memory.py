"""Tables updated within backward, for memory plans; and the memory that the parameter server takes on each rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from scaffe.collectives.server.memory.common import RESIDENT_BYTES
from scaffe.collectives.server.memory.layout import mail_slots
from scaffe.collectives.server.protocol.mailbox import mailbox_bytes
from scaffe.collectives.server.tables.roles import Roles
from scaffe.training.fault_tolerance.state_sources import tolerates_rank_loss
from scaffe.training.parameter_server.options import Consistency
from scaffe.training.strategies.buckets import Bucket
from scaffe.training.strategies.eager_update import EagerUpdate
from scaffe.training.strategies.replica import Replica
from scaffe.training.updater import Updater


class EagerTables(EagerUpdate):
    """Tables that are pushed right after their layers' backward, and pulled before their forward.

    Args:
        replica: what is trained.
        buckets: a table each.
        update: pushes a table; takes its bucket (or some rows of it), its number, and the iteration.
        pull_again: pulls a table with the values that it was pulled with last; None where the shards may have others.
        always: whether a table is pulled before every forward.
        own_updaters: see EagerUpdate.

    Attributes:
        numbers: of all tables, by the first layer.
        taken: of those that are updated so.
    """

    def __init__(self, replica: Replica, buckets: Sequence[Bucket], update: Callable[[Bucket, int, int], None],
                 pull_again: Callable[[int], None] | None = None, always: bool = False,
                 own_updaters: Sequence[Updater] = ()) -> None:
        self._replica, self._buckets, self._update, self._pull_again = replica, buckets, update, pull_again
        self.refreshes_parameters, self.may_refresh_parameters = always, not always
        self.own_updaters = own_updaters
        self.numbers = {bucket.first_layer: number for number, bucket in enumerate(buckets)}
        self.taken: set[int] = set()

    def buckets(self) -> Sequence[Bucket]:
        """See EagerUpdate: all, in iterations of one pass that clip nothing, where ranks hold whole nets and none
        continues without another; otherwise none."""
        replica = self._replica
        clips = replica.updater.param.clip_gradients >= 0
        needs_all = (clips or replica.iter_size > 1 or replica.intra_replica.acts
                     or tolerates_rank_loss(replica.options))
        return () if needs_all else self._buckets

    def take(self, buckets: Sequence[Bucket]) -> None:
        self.taken = {self.numbers[bucket.first_layer] for bucket in buckets}

    def update_in_backward(self, bucket: Bucket, rate: float, iteration: int) -> None:
        """See EagerUpdate: push it."""
        self._update(bucket, self.numbers[bucket.first_layer], iteration)

    def refresher(self, bucket: Bucket) -> Callable[[], None] | None:
        """See EagerUpdate: pull it once more."""
        return None if self._pull_again is None else partial(self._pull_again, self.numbers[bucket.first_layer])


@dataclass(frozen=True)
class MemoryAccounting:
    """Bytes that the parameter server takes on a worker and on a server. The same on all ranks of a run.

    Attributes:
        how: the server's consistency.
        roles: of all ranks.
        n_tables, n_bytes: how many tables there are, and the bytes of their values.
        n_histories: of the solver's rule.
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
        """The accounting of a run with a table for each bucket."""
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
        """Bytes of the values on one shard."""
        return -(-self.n_bytes // len(self.roles.shards))

    @property
    def _copies(self) -> int:
        return self.n_histories * (self.how.keeps_copies and self.roles.topology.n_nodes > 1)
