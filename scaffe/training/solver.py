"""The training loop, and what it is made of: nets, an update rule, a strategy, observers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import UserError
from scaffe.files import SolverState
from scaffe.log import info
from scaffe.nets.cuda_graphs import Recorded
from scaffe.nets.net import Net
from scaffe.training.lr_policies import learning_rate
from scaffe.training.strategies import Replica, Strategy, choose_strategy, strategies
from scaffe.training.timers import Timers
from scaffe.training.updater import Updater


@dataclass(frozen=True)
class Method:
    """How ranks train together.

    Attributes:
        strategy: its name ("sc-b"), or "auto".
        algorithm: how it reduces and broadcasts ("mpi", "CB-8", "auto").
        allow_nan: go on when the loss is not finite.
        options: the command line's other options, for the strategy.
    """

    strategy: str = "auto"
    algorithm: str = "auto"
    allow_nan: bool = False
    options: Any = None


class Observer:
    """Somebody who watches the loop: display, test, snapshots, signals, progress. Called in the order of the list."""

    def begin(self, solver: Solver) -> None:
        """Once, before the first iteration."""

    def before_iteration(self, solver: Solver) -> None:
        """Before an iteration; ``solver.iteration`` are done."""

    def gradients_ready(self, solver: Solver, loss: float, rate: float) -> None:
        """Between the passes and the update."""

    def after_iteration(self, solver: Solver) -> None:
        """After the update; ``solver.iteration`` counts it."""

    def finish(self, solver: Solver) -> None:
        """Once, when ``solve`` is through; not after an error."""

    def kept(self, solver: Solver) -> dict[str, int]:
        """What a snapshot keeps of this observer, fields of a SolverState. Called by all ranks."""
        return {}

    def restore(self, state: SolverState) -> None:
        """Go on from a snapshot, before ``begin``."""


class Solver:
    """One rank's part in training a net.

    Args:
        param: the SolverParameter message, upgraded.
        net: the training net.
        test_nets: nets to test, sharing the training net's parameters.
        communicator: the ranks that train together.
        method: how the ranks train together.
        shares: this rank's places in the data, for a run that goes on.
    """

    def __init__(self, param: Any, net: Net, test_nets: list[Net], communicator: Communicator,
                 method: Method | None = None, shares: Sequence[Share] = ()) -> None:
        self.param, self.net, self.test_nets, self.communicator = param, net, test_nets, communicator
        self.method, self.shares = method or Method(), shares
        self.iteration = 0
        self.stopping = False  # set by an observer on all ranks at once: end after this iteration
        self.timers = Timers()
        self._unchecked: list[Any] = []
        self.observers: list[Observer] = []
        for name in ("average_loss", "iter_size"):
            if getattr(param, name) < 1:
                raise UserError(f"the solver's {name} must be at least 1, got {getattr(param, name)}")
        learning_rate(param, 0)  # an unknown policy shows before hours of training
        net.params.move(partial(communicator.alloc, memory=net.context.kernels.PLACE))
        for test_net in test_nets:
            test_net.share_trained_layers(net)
        self.updater = Updater(param, net.params, net.context.kernels)
        self.strategy = self._make_strategy(self.method)
        self.updater.own(self.strategy.owned())

    def _make_strategy(self, method: Method) -> Strategy:
        self.communicator.check(method.algorithm)
        name = method.strategy
        if name == "auto":
            can_scatter = self.communicator.can("reduce_scatter", method.algorithm)
            name = choose_strategy(self.communicator.topology, can_scatter)
        try:
            kind = strategies.get(name)
        except KeyError as error:
            raise UserError(error.args[0]) from error
        made = kind(Replica(self.net, self.updater, self.communicator, self.timers, self.param.iter_size,
                            method.algorithm, method.options))
        if self.net.context.kernels.RECORDS:
            made.passes = Recorded(self.net, made.seams, several_passes=self.param.iter_size > 1)
        if self.communicator.n_ranks > 1:  # one rank pays for no seam between layers
            self.net.before_forward.append(made.before_forward)
            self.net.after_backward.append(made.after_backward)
        return made

    def solve(self) -> None:
        """Train from the iteration reached up to max_iter, then show and test the result as Caffe does."""
        info(f"Solving {self.net.name}")
        info(f"Learning Rate Policy: {self.param.lr_policy}")
        self._tell("begin")
        self.strategy.begin()
        self.step(self.param.max_iter - self.iteration)
        self.strategy.settle()
        self._tell("finish")
        self.strategy.finish()
        info("Optimization stopped early." if self.stopping else "Optimization Done.")

    def step(self, n_iterations: int) -> None:
        """Train that many iterations, or fewer when an observer stops it."""
        end = self.iteration + n_iterations
        while self.iteration < end and not self.stopping:
            self._tell("before_iteration")
            loss = self.strategy.iterate()
            self._unchecked.append(loss)
            if len(self._unchecked) >= self.net.context.kernels.CHECK_EVERY:
                self.check_losses()
            rate = learning_rate(self.param, self.iteration)
            self._tell("gradients_ready", loss, rate)
            self.strategy.apply(rate, self.iteration)
            self.iteration += 1
            self._tell("after_iteration")
        self.check_losses()

    def _tell(self, event: str, *values: float) -> None:
        for observer in self.observers:
            getattr(observer, event)(self, *values)

    def check_losses(self) -> None:
        """Look at the losses since last time, which a device lets wait. Raises UserError for one that is no number."""
        losses, self._unchecked = [float(loss) for loss in self._unchecked], []
        for back, loss in enumerate(reversed(losses)):
            if not math.isfinite(loss) and not self.method.allow_nan:
                self.net.check_values()
                raise UserError(f"iteration {self.iteration - back}: the loss is {loss} on rank "
                                f"{self.communicator.rank}; lower base_lr, or go on with -allow-nan")

    def mean_over_ranks(self, values: list[float], n_parts: int | None = None) -> list[float]:
        """Sums of the ranks' values divided by n_parts (the number of ranks unless given); called by all ranks."""
        sums = np.array(values, np.float64)
        if self.communicator.n_ranks > 1:
            with self.timers("communication"):
                self.communicator.allreduce(sums, "sum", "mpi")
        return [float(value) for value in sums / (n_parts or self.communicator.n_ranks)]
