"""ssp: parameters on a parameter server, of which no worker's copy is older than a given number of iterations."""

from __future__ import annotations

from typing import Any

from scaffe.flags import Flags
from scaffe.training.parameter_server.options import SLACK, Consistency
from scaffe.training.parameter_server.roles import ServerRoles
from scaffe.training.strategies.base import strategies
from scaffe.training.strategies.roles import Replica
from scaffe.training.strategies.server_strategy import EagerTables, ServerStrategy


def add_slack_flag(flags: Flags) -> None:
    """Add ``-slack``."""
    flags.flag("slack", 0.0, "iterations ahead; inf: any", kind=SLACK)


@strategies.register("ssp")
class Ssp(ServerStrategy):
    """Stale synchronous parallel training on a parameter server (Cui et al., GeePS, EuroSys 2016, 4.2).

    Each bucket of layers is a table. A worker asks for all tables when its iteration ends, waits for each just before
    the first layer that needs it, and pushes its gradients as soon as backward has completed them. With ``-slack`` 0
    the shards sum all workers' gradients and update once an iteration, as in synchronous training. Otherwise each
    worker's gradient is an update of its own at the rate divided by the number of workers; updates of iterations before
    t - slack are in what a worker computes iteration t with, and newer ones may be.
    """

    roles = ServerRoles(lambda options: Consistency(options.slack, options.servers), add_slack_flag)
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
        """See ServerStrategy; if the solver clips gradients: clip them, and push them."""
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
        updater = self.replica.updater
        self.push(number, self.replica.net.params.diff, factor * updater.gradient_scale, self._rate, self._n_updates)
