"""downpour: replicas take local steps, and now and then fetch parameters and push accumulated gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from scaffe.errors import UserError
from scaffe.flags import Flags, whole
from scaffe.layers.kernels.backend import is_device
from scaffe.log import warning
from scaffe.nets.flat_params import copy_into
from scaffe.training.parameter_server.layout import LocalUpdate, Schedule
from scaffe.training.parameter_server.options import Consistency
from scaffe.training.parameter_server.roles import ServerRoles
from scaffe.training.shard_updater import ShardUpdater
from scaffe.training.strategies.base import strategies
from scaffe.training.strategies.roles import Replica
from scaffe.training.strategies.server_strategy import EagerTables, ServerStrategy
from scaffe.training.strategies.transfers import Bucket
from scaffe.training.updater import Updater


def add_downpour_flags(flags: Flags) -> None:
    """Add the flags that say when a replica fetches and pushes."""
    flags.flag("n_fetch", 1, "downpour: steps between fetches", kind=whole(1))
    flags.flag("n_push", 1, "downpour: steps between pushes", kind=whole(1))
    flags.flag("n_sync", 0, "downpour: sets both of these", kind=whole(1))
    flags.flag("warm_start", 0, "iterations by one replica first", kind=whole(0))


def downpour_consistency(options: Any) -> Consistency:
    """See ServerRoles: the server bounds no worker."""
    if options.n_sync and (options.n_fetch > 1 or options.n_push > 1):
        raise UserError(f"-n_sync {options.n_sync} sets n_fetch and n_push: -n_fetch {options.n_fetch} -n_push "
                        f"{options.n_push} do not go with it", everywhere=True)
    return Consistency(math.inf, options.servers, decays=False)


@strategies.register("downpour")
class Downpour(ServerStrategy):
    """Downpour SGD (Dean et al., NIPS 2012, 4.1 and Algorithm 1.1); with ``-n_sync`` GPU A-SGD (Paine et al., 2013).

    Each replica reads its own part of the data and follows its own gradients from the parameters that it fetched last;
    the gradients accrue and are pushed to the shards, which apply the solver's rule to each push. A gradient weighs as
    many images as it is of: with ``-scal strong`` a replica's batch is 1/P of the solver's and its rate 1/P of it,
    with ``-scal weak`` a replica has the whole batch and the whole rate, as in the paper. The weight decay is part of
    the gradient, and ``clip_gradients`` clips each replica's own.

    Tables of large layers may be updated, pushed and taken over each in its layers' steps alone (``eager``).
    """

    roles = ServerRoles(downpour_consistency, add_downpour_flags)
    eager: EagerTables

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        options, updater = replica.options, replica.updater
        self._schedule = Schedule(options.n_sync or options.n_fetch, options.n_sync or options.n_push)
        self._warm_start, self._is_weak = options.warm_start, options.scal == "weak"
        self._local = Updater(updater.param, updater.params, replica.net.context.kernels, LocalUpdate(updater.param))
        self._local.keeps_step = False
        self._local.own(self.buckets.runs)
        self.state.further_bytes = lambda: sum(shard.n_bytes for shard in self._local.shards)  # of what accrues
        self.eager = EagerTables(replica, self.buckets.all, self._advance_one, own_updaters=(self._local,))
        self._due: set[int] = set()  # eager tables whose forward this iteration has not come to
        self._is_alone = self._takes = self._asks = False  # what is fetched in this iteration
        self._pushes: bool | None = None  # whether it pushes; None: that is not decided
        self._rate, self._n_updates = 0.0, 0.0
        self.hook_points = ()
        # where a replica's ranks sum gradients, or tables may be eager, on a device unasked too
        self.acts_between_layers = (replica.intra_replica.acts or is_device(replica.net.context.kernels)
                                    or bool(vars(options).get("memory")))

    def begin(self) -> None:
        """See ServerStrategy; say what DistBelief's authors would do otherwise, where replicas may diverge."""
        n_replicas, momentum = self.replica.communicator.n_ranks, self.replica.updater.param.momentum
        if n_replicas > 1 and momentum > 0:
            warning(f"-strategy downpour with a momentum of {momentum:g} on {n_replicas} replicas may diverge: "
                    'DistBelief (NIPS 2012, 4.1) recommends AdaGrad (type: "AdaGrad", no momentum) and a warm start '
                    "(-warm_start)")
        super().begin()

    def iterate(self, rate: float, iteration: int) -> float:
        """See Strategy. While one replica trains alone, the others wait for it in each iteration."""
        if self._waits(iteration):
            self.before_iteration(rate, iteration)
            self.replica.net.params.fetch_all()
            self.pull(0, newest=True)
            return 0.0
        return super().iterate(rate, iteration)

    def before_iteration(self, rate: float, iteration: int) -> None:
        super().before_iteration(rate, iteration)
        communicator = self.replica.communicator
        is_warm = iteration >= self._warm_start
        self._rate = rate / communicator.n_ranks if is_warm and not self._is_weak else rate
        self._n_updates = iteration * communicator.n_ranks + communicator.rank if is_warm else iteration
        alone = self.replica.net.shares.weight if not is_warm else 1.0
        self._local.gradient_scale = 1 / alone
        if self._waits(iteration):
            return
        if is_warm and iteration and iteration == self._warm_start:
            self.synchronize_parameters()
        else:
            self._fetch(iteration, is_warm)

    def before_forward(self, layer_index: int) -> None:
        """See Strategy: the same of the eager table that begins with this layer."""
        number = self.eager.numbers.get(layer_index)
        if number in self._due:
            self._due.discard(number)
            self._exchange(number)

    def apply(self, rate: float, iteration: int) -> None:
        if not self._waits(iteration):
            late = [number for number in reversed(range(len(self.tables.batches))) if number not in self.eager.taken]
            self._advance(late, iteration, self._step)
            self._pushes = None
        super().apply(rate, iteration)

    def synchronize_parameters(self) -> None:
        """See ServerStrategy: what has accumulated is pushed first, as an iteration of its own."""
        if self._schedule.synchronizes():
            self._local.fetch_all()
            with self._pushing(list(reversed(range(len(self.tables.batches))))):
                for shard in self._local.shards:
                    self._local.updated(shard)
        self.tables.server.clock()
        super().synchronize_parameters()

    def _waits(self, iteration: int) -> bool:
        return iteration < self._warm_start and self.replica.communicator.rank > 0

    def _fetch(self, iteration: int, is_warm: bool) -> None:
        batches, self._is_alone = self.tables.batches, not is_warm
        self._takes = is_warm and self._schedule.takes_fetched(all(batch.is_ready() for batch in batches))
        self._asks = is_warm and self._schedule.starts_fetch(iteration)
        self._due = set(self.eager.taken)
        for number in range(len(batches)):
            if number not in self._due:
                self._exchange(number)

    def _exchange(self, number: int) -> None:
        """Take over a table, and fetch it, if this iteration does so. What the replica fetches that trains alone has
        its own updates."""
        batch = self.tables.batches[number]
        if self._is_alone:
            batch.prefetch()
            self.pull(number)
        if self._takes:
            self.pull(number, prefetched=True)
        if self._asks:
            batch.prefetch()

    def _advance_one(self, bucket: Bucket, number: int, iteration: int) -> None:
        self._advance([number], iteration, partial(self._local.update_ahead, bucket.place, self._rate,
                                                   int(self._n_updates)))

    def _step(self) -> None:
        intra_replica, param = self.replica.intra_replica, self.replica.updater.param
        squares = intra_replica.sum_of_squares(self.replica.net.params.diff) if param.clip_gradients >= 0 else None
        self._local.update(self._rate, int(self._n_updates), sum_of_squares=squares)

    def _advance(self, numbers: Sequence[int], iteration: int, step: Callable[[], None]) -> None:
        """Make a step, and push these tables if this iteration does."""
        if self._pushes is None:
            self._schedule.stepped(iteration if iteration >= self._warm_start else 0)
            self._pushes = self._schedule.starts_push(
                iteration < self._warm_start or all(batch.is_free() for batch in self.tables.batches))
        with self._pushing(numbers if self._pushes else ()), self.replica.timers("update"):
            step()

    @contextmanager
    def _pushing(self, numbers: Sequence[int]) -> Iterator[None]:
        """Push tables at the end of the with-block. Within it, each shard's accumulated gradients go to the push
        buffers as soon as the shard is updated."""
        batches, names, lent = self.tables.batches, self.tables.layout.places, dict[int, Any]()
        for number in numbers:
            with self.replica.timers("communication", f"push {names[number].name}"):
                lent[number] = batches[number].pre_update()[0]
        self._local.updated = partial(self._give, lent)
        yield
        for number in numbers:
            batches[number].update(self._rate, self._n_updates)
            self.statistics.pushed()

    def _give(self, lent: Mapping[int, Any], shard: ShardUpdater) -> None:
        """Move a shard's accumulated gradients into the push buffers, and set them to 0."""
        for number, pushed in lent.items():
            place = self.buckets.all[number].place
            first, last = max(place.start, shard.interval.start), min(place.stop, shard.interval.stop)
            if first < last:
                accumulated, mine = shard.part(0, first, last), pushed[first - place.start:last - place.start]
                for piece in self.tables.batches[number].chunks(mine):
                    copy_into(mine[piece], accumulated[piece])
                accumulated[:] = 0
