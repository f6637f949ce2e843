"""downpour: replicas that train by themselves, and now and then fetch parameters and push what has accrued."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from scaffe.errors import UserError
from scaffe.flags import Flags, at_least
from scaffe.training.served.accrue import Accrue
from scaffe.training.served.options import Consistency
from scaffe.training.served.schedule import Schedule
from scaffe.training.strategies.base import strategies
from scaffe.training.strategies.replica import Replica
from scaffe.training.strategies.served import Served
from scaffe.training.update_rules import Hyper


@strategies.register("downpour")
class Downpour(Served):
    """Downpour SGD (Dean et al., NIPS 2012, 4.1 and Algorithm 1.1); with ``-n_sync`` GPU A-SGD (Paine et al., 2013).

    Each replica reads its own part of the data and follows its own gradients from the parameters that it fetched last;
    the gradients accrue and are pushed to the shards, which apply the solver's rule to each push. A gradient weighs as
    many images as it is of: with ``-scal strong`` a replica's batch is 1/P of the solver's and its rate 1/P of it,
    with ``-scal weak`` a replica has the whole batch and the whole rate, as in the paper. The weight decay is part of
    the gradient, and ``clip_gradients`` clips each replica's own.
    """

    @classmethod
    def flags(cls, flags: Flags) -> None:
        """See Strategy."""
        flags.flag("n_fetch", 1, "steps between two fetches", kind=at_least(1), metavar="N")
        flags.flag("n_push", 1, "steps between two pushes", kind=at_least(1), metavar="N")
        flags.flag("n_sync", 0, "sets n_fetch and n_push", kind=at_least(1), metavar="N")
        flags.flag("warm_start", 0, "iterations that one replica trains first", kind=at_least(0), metavar="N")
        super().flags(flags)

    @classmethod
    def consistency(cls, options: Any) -> Consistency:
        """See Served."""
        if options.n_sync and (options.n_fetch > 1 or options.n_push > 1):
            raise UserError(f"-n_sync {options.n_sync} sets n_fetch and n_push: -n_fetch {options.n_fetch} -n_push "
                            f"{options.n_push} do not go with it", everywhere=True)
        return Consistency(math.inf, options.servers, decays=False)

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        options, params = replica.options, replica.net.params
        self._schedule = Schedule(options.n_sync or options.n_fetch, options.n_sync or options.n_push)
        self._warm_start, self._is_weak = options.warm_start, options.scal == "weak"
        self._accrued = params.zeros(params.n_elems, params.dtype)
        self._local = replica.updater.plan(Accrue(replica.updater.param), [
            segment for place in self.buckets.runs for segment in replica.updater.segments(place, 0)])
        self._rate, self._n_updates = 0.0, 0.0

    @property
    def seams(self) -> Collection[int]:
        """See Strategy: none."""
        return ()

    @property
    def kept_bytes(self) -> int:
        """See Strategy: what accrues, too."""
        return super().kept_bytes + self._accrued.nbytes

    @property
    def acts_between_layers(self) -> bool:
        """See Strategy: where a replica's ranks sum gradients."""
        return self.replica.within.acts

    def iterate(self, rate: float, iteration: int) -> float:
        """See Strategy. While one replica trains alone, the others wait for it in each iteration."""
        if self._waits(iteration):
            self.before_iteration(rate, iteration)
            self.pull(0, newest=True)
            return 0.0
        return super().iterate(rate, iteration)

    def before_iteration(self, rate: float, iteration: int) -> None:
        """Take over what was fetched, if it is there, and start to fetch, if it is time to."""
        super().before_iteration(rate, iteration)
        communicator = self.replica.communicator
        is_warm = iteration >= self._warm_start
        self._rate = rate / communicator.n_ranks if is_warm and not self._is_weak else rate
        self._n_updates = iteration * communicator.n_ranks + communicator.rank if is_warm else iteration
        if self._waits(iteration):
            return
        if not is_warm:
            self._fetch_now()
        elif iteration == self._warm_start and iteration:
            self.settle()
        else:
            self._fetch(iteration)

    def apply(self, rate: float, iteration: int) -> None:
        """Let the gradients accrue, make the local step, and push, if it is time to and the last push is over."""
        if not self._waits(iteration):
            self._step()
            schedule = self._schedule
            schedule.accrued(iteration if iteration >= self._warm_start else 0)
            if schedule.pushes(iteration < self._warm_start or all(b.is_free() for b in self.tables.batches)):
                self._push_all()
        super().apply(rate, iteration)

    def settle(self) -> None:
        """See Served: what has accrued is pushed first, as an iteration of its own."""
        if self._schedule.settles():
            self._push_all()
        self.tables.server.clock()
        super().settle()

    def _waits(self, iteration: int) -> bool:
        """Whether this replica waits for the one that trains alone first."""
        return iteration < self._warm_start and self.replica.communicator.rank > 0

    def _fetch_now(self) -> None:
        """The replica that trains alone has its own updates in what it fetches."""
        for number, batch in enumerate(self.tables.batches):
            batch.prefetch()
            self.pull(number)

    def _fetch(self, iteration: int) -> None:
        batches = self.tables.batches
        if self._schedule.takes(all(batch.is_ready() for batch in batches)):
            for number in range(len(batches)):
                self.pull(number, prefetched=True)
        if self._schedule.fetches(iteration):
            for batch in batches:
                batch.prefetch()

    def _step(self) -> None:
        replica = self.replica
        updater, params, param = replica.updater, replica.net.params, replica.updater.param
        hyper = Hyper(self._rate, param.weight_decay, param.regularization_type == "L1",
                      updater.gradient_scale / replica.iter_size, int(self._n_updates))
        with replica.timers("update"):
            self._local.run(params.data, params.diff, [self._accrued], hyper, self.clip_factor())

    def _push_all(self) -> None:
        for number in reversed(range(len(self.tables.batches))):
            self.push(number, self._accrued, 1.0, self._rate, self._n_updates)
        self._accrued[:] = 0
