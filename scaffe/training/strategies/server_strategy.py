"""What strategies have in common whose parameters lie on a parameter server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from scaffe.collectives.communicator import Communicator
from scaffe.errors import UserError
from scaffe.log import info
from scaffe.training.fault_tolerance.options import tolerates_rank_loss
from scaffe.training.loss_scale import needs_scale
from scaffe.training.parameter_server import roles as server_rank
from scaffe.training.parameter_server.options import StalenessStatistics, summary
from scaffe.training.parameter_server.roles import ServerRoles
from scaffe.training.parameter_server.state import ServerFaultTolerance, ServerState
from scaffe.training.parameter_server.stop_protocol import stop_protocol
from scaffe.training.parameter_server.tables import ROOT, Tables
from scaffe.training.strategies.base import EagerUpdate, InStep, Strategy
from scaffe.training.strategies.roles import Replica
from scaffe.training.strategies.transfers import Bucket, Buckets
from scaffe.training.updater import Updater

COMPUTING = ("data", "forward", "backward")


class ServerStrategy(Strategy):
    """Holds the tables, and brings workers in step where all need the same parameters.

    Subclasses say how the server keeps the parameters (``roles``), and when to pull and to push.

    Attributes:
        buckets: the layers whose parameters are one table each.
        tables: the parameters on the server, from ``begin`` on.
        statistics: what this worker has done.
    """

    roles: ClassVar[ServerRoles]
    fault_tolerance_type = ServerFaultTolerance
    state: ServerState
    tables: Tables

    def __init__(self, replica: Replica) -> None:
        if needs_scale(replica.net.context.dtype):
            name = getattr(replica.options, "strategy", type(self).__name__)
            raise UserError(f"-strategy {name} scales no losses, as fp16 needs; bf16 does without", everywhere=True)
        self.how = self.roles.consistency(replica.options)
        self.buckets = Buckets(replica, ())
        peers = Communicator.single() if replica.division is None else replica.division.sums
        super().__init__(replica, ServerState(replica, self.how, self.buckets), InStep(peers))
        self.statistics = StalenessStatistics()
        self.acts_between_layers = True  # since the parameters are not the net's own
        self.hook_points = self.buckets.by_first_layer.keys()

    def begin(self) -> None:
        self.state.make_tables()
        self.tables = self.state.tables
        self.in_step = self._stops = stop_protocol(self.replica)
        to_host = self.replica.net.context.kernels.to_host
        self.tables.start(to_host(self.replica.net.params.whole(to_host)), self.state.restored)
        self.state.has_begun = True
        self.tables.server.meanwhile = self._stops.poll
        self._started = time.perf_counter()
        self.synchronize_parameters()
        self.state.restored = {}

    def before_iteration(self, rate: float, iteration: int) -> None:
        self._stops.begin(iteration)

    def after_backward(self, layer_index: int) -> None:
        """In the last pass, layers' gradients are complete once the replica's ranks have summed them."""
        if self.is_last_pass:
            for index in self.replica.intra_replica.completed(layer_index):
                self.completed(index)

    def gradients_ready(self) -> None:
        for index in self.replica.intra_replica.finish():
            self.completed(index)

    def completed(self, layer_index: int) -> None:
        """A layer's gradients are complete."""

    def apply(self, rate: float, iteration: int) -> None:
        """End this worker's iteration; the shards update."""
        replica = self.replica
        if self.state.owned():
            replica.updater.update(rate, iteration, replica.communicator.n_ranks, sum_of_squares=0.0)
        self.tables.server.clock()

    def pull(self, number: int, newest: bool = False, prefetched: bool = False) -> None:
        """Copy a table into the net's parameters, and count the wait; see ``Tables.pull``."""
        name = self.tables.layout.places[number].name
        with self.replica.timers("communication") as span:
            staleness = self.tables.pull(number, self.replica.net.params.data, newest, prefetched)
            span.label = f"pull {name}, {staleness} clocks old"
        if not newest:
            self.statistics.pulled(staleness)

    def push(self, number: int, gradient: Any, factor: Any, rate: float, n_updates: float) -> None:
        """Hand a table's gradient to the shards, and count the wait for the buffer; see ``Tables.push``."""
        with self.replica.timers("communication", f"push {self.tables.layout.places[number].name}"):
            self.tables.push(number, gradient, factor, rate, n_updates)
        self.statistics.pushed()

    def synchronize_parameters(self) -> None:
        """Give all workers the same parameters: with every worker's updates of all iterations before this one, and no
        others. All workers call it before the same iteration."""
        replica = self.replica
        replica.net.params.fetch_all()
        for number in range(len(self.tables.batches)):
            self.pull(number, newest=True)
        with replica.timers("communication"):
            for place in self.buckets.frozen:
                replica.communicator.bcast(replica.net.params.data[place], ROOT)
            replica.communicator.barrier()  # no rank pushes before all have pulled
            replica.intra_replica.broadcast_frozen()

    def finish(self) -> None:
        replica, timers = self.replica, self.replica.timers
        aside = sum(timers.seconds.get(name, 0.0) for name in ("test", "snapshot"))
        self.statistics.elapsed = time.perf_counter() - self._started - aside
        self.statistics.computing = sum(timers.seconds.get(name, 0.0) for name in COMPUTING)
        self.statistics.waiting = timers.seconds.get("communication", 0.0)
        everyone = replica.communicator.allgather_objects(self.statistics)
        self.state.command(server_rank.FINISH)
        self.tables.server.meanwhile = None
        self._stops.close()
        for line in summary(everyone, self.tables.close()):
            info(line)

    def counters(self) -> dict[str, float]:
        return dict(zip(("pulls", "pushes"), self.tables.server.taken or (), strict=False))


class EagerTables(EagerUpdate):
    """Tables that are pushed right after their layers' backward, and pulled before their forward.

    Args:
        buckets: a table each.
        update: pushes a table; takes its bucket (or some rows of it), its number, and the iteration.
        pull_again: pulls a table with the values that it was pulled with last; None where the shards may have others.
        always: whether a table is pulled before every forward.

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
        self._update(bucket, self.numbers[bucket.first_layer], iteration)

    def refresher(self, bucket: Bucket) -> Callable[[], None] | None:
        return None if self._pull_again is None else partial(self._pull_again, self.numbers[bucket.first_layer])
