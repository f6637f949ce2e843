"""Strategies whose parameters lie on a parameter server: what they have in common, and ssp."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from scaffe.collectives.communicator import Communicator
from scaffe.errors import UserError
from scaffe.log import info
from scaffe.training.fault_tolerance.replacement import tolerates_rank_loss
from scaffe.training.loss_scale import needs_scale
from scaffe.training.parameter_server import roles as server_rank
from scaffe.training.parameter_server.options import SLACK, Consistency, StalenessStatistics, summary
from scaffe.training.parameter_server.roles import ServerRoles
from scaffe.training.parameter_server.state import ServerFaultTolerance, ServerState
from scaffe.training.parameter_server.stop_protocol import stop_protocol
from scaffe.training.parameter_server.tables import ROOT, Tables
from scaffe.training.strategies.base import EagerUpdate, InStep, Strategy, strategies
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
        if self.is_last_pass:
            for index in self.replica.intra_replica.completed(layer_index):
                self.completed(index)

    def gradients_ready(self) -> None:
        for index in self.replica.intra_replica.finish():
            self.completed(index)

    def completed(self, layer_index: int) -> None:
        """A layer's gradients are complete."""

    def apply(self, rate: float, iteration: int) -> None:
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


@strategies.register("ssp")
class Ssp(ServerStrategy):
    """Stale synchronous parallel training on a parameter server (Cui et al., GeePS, EuroSys 2016, 4.2).

    Each bucket of layers is a table. A worker asks for all tables when its iteration ends, waits for each just before
    the first layer that needs it, and pushes its gradients as soon as backward has completed them. With ``-slack`` 0
    the shards sum all workers' gradients and update once an iteration, as in synchronous training. Otherwise each
    worker's gradient is an update of its own at the rate divided by the number of workers; updates of iterations before
    t - slack are in what a worker computes iteration t with, and newer ones may be.
    """

    roles = ServerRoles(lambda options: Consistency(options.slack, options.servers), lambda flags: flags.flag(
        "slack", 0.0, "ssp: iterations ahead; inf: any", kind=SLACK))
    eager: EagerTables

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self._is_new: set[int] = set()  # tables that this iteration has pulled
        self._clips = replica.updater.param.clip_gradients >= 0
        self._whole: Any = None  # the sum of all workers' gradients, where it must be known to clip them
        self._rate = self._n_updates = 0.0
        self.state.further_bytes = self._sum_bytes
        pull_again = None if self.how.slack else self._pull_again  # no table changes before all have pushed theirs
        self.eager = EagerTables(replica, self.buckets.all, lambda _, number, iteration: self._push(number, 1.0),
                                 pull_again, always=True)

    def _sum_bytes(self) -> int:
        """Of the sum of all workers' gradients, where these are clipped together."""
        params = self.replica.net.params
        needs_sum = self._clips and not self.how.slack and self.replica.communicator.n_ranks > 1
        return needs_sum * params.n_elems * params.dtype.itemsize

    def before_iteration(self, rate: float, iteration: int) -> None:
        super().before_iteration(rate, iteration)
        n_workers, n_summed = self.replica.communicator.n_ranks, self.how.n_summed(self.replica.communicator.n_ranks)
        self._rate = rate * n_summed / n_workers
        self._n_updates = iteration if n_summed == n_workers else iteration * n_workers + self.replica.communicator.rank
        self._is_new.clear()

    def before_forward(self, layer_index: int) -> None:
        number = self.eager.numbers.get(layer_index)
        if number is not None and number not in self._is_new:
            self.pull(number)
            self._is_new.add(number)

    def completed(self, layer_index: int) -> None:
        """Push the table that begins with this layer: its gradients are complete. Clipping must see all first."""
        number = self.eager.numbers.get(layer_index)
        if number is not None and not self._clips and number not in self.eager.taken:
            self._push(number, 1.0)

    def gradients_ready(self) -> None:
        super().gradients_ready()
        if self._clips:
            factor = self._clip_factor()
            for number in reversed(range(len(self.buckets.all))):
                self._push(number, factor)

    def synchronize_parameters(self) -> None:
        super().synchronize_parameters()
        self._is_new = set(self.eager.numbers.values()) - self.eager.taken

    def _factor(self, gradient: Any, n_summed: int = 1) -> Any:
        """See Updater, for the whole net's gradient. Called by all ranks that share the net."""
        return self.replica.updater.clip_factor(gradient, n_summed, self.replica.intra_replica.sum_of_squares(gradient))

    def _clip_factor(self) -> Any:
        """The clipping factor of one update: of all workers' gradients with slack 0, otherwise of this one's."""
        replica, params = self.replica, self.replica.net.params
        if self.how.slack or replica.communicator.n_ranks == 1:
            return self._factor(params.diff)
        if self._whole is None:
            self._whole = params.zeros(params.n_elems, params.dtype)
        self._whole[:] = params.diff
        replica.communicator.allreduce(self._whole, "sum", replica.algorithm_for("allreduce"))
        return self._factor(self._whole, replica.communicator.n_ranks)

    def _pull_again(self, number: int) -> None:
        self.tables.pull(number, self.replica.net.params.data)

    def _push(self, number: int, factor: Any) -> None:
        self.push(number, self.replica.net.params.diff, factor, self._rate, self._n_updates)
