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
        strategy: a strategy's name ("sc-b"), or "auto".
        algorithm: the collective algorithm that it reduces and broadcasts with ("mpi", "CB-8", "auto").
        allow_nan: continue when the loss is not finite.
        options: the command line's other options, for the strategy.
    """

    strategy: str = "auto"
    algorithm: str = "auto"
    allow_nan: bool = False
    options: Any = None


class Observer:
    """Watches the training loop: display, test, snapshots, signals, progress.

    The solver calls its observers in the order of ``Solver.observers``. A method that is not overridden does nothing.
    """

    def begin(self, solver: Solver) -> None:
        """Once, before the first iteration."""

    def before_iteration(self, solver: Solver) -> None:
        """Before an iteration; ``solver.iteration`` iterations are done."""

    def gradients_ready(self, solver: Solver, loss: float, rate: float) -> None:
        """After the passes of an iteration, before its update.

        Args:
            solver: the solver.
            loss: this rank's mean loss over the iteration's passes.
            rate: the iteration's learning rate.
        """

    def after_iteration(self, solver: Solver) -> None:
        """After the update; ``solver.iteration`` counts this iteration already."""

    def finish(self, solver: Solver) -> None:
        """Once, at the end of ``solve``; not called after an error."""

    def kept(self, solver: Solver) -> dict[str, int]:
        """What a snapshot saves for this observer: names and values of SolverState fields. Called by all ranks."""
        return {}

    def restore(self, state: SolverState) -> None:
        """Take back what ``kept`` saved; called before ``begin`` when a run resumes."""


class Solver:
    """One rank's part in training a net.

    Args:
        param: the SolverParameter message, upgraded.
        net: the training net.
        test_nets: nets to test; they use the training net's parameters.
        communicator: the ranks that train together.
        method: how the ranks train together.
        shares: which part of the data each net of this rank reads; a run that resumes moves them on.

    Attributes:
        iteration: iterations done so far.
        stopping: set by an observer, on all ranks at once, to end training after this iteration.
        observers: called in this order.

    Raises:
        UserError: the solver's numbers, learning rate policy or type, or the method's strategy or algorithm, are not
            known or not usable.
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
        """Train up to ``max_iter``, then display and test the result as Caffe does."""
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
        """Train this many more iterations, or fewer if an observer sets ``stopping``."""
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
        """Check that the losses since the last check are finite. On a GPU this waits for the device, so it is done
        only every ``CHECK_EVERY`` iterations.

        Raises:
            UserError: a loss is nan or infinite, and ``allow_nan`` is not set.
        """
        losses, self._unchecked = [float(loss) for loss in self._unchecked], []
        for back, loss in enumerate(reversed(losses)):
            if not math.isfinite(loss) and not self.method.allow_nan:
                self.net.check_values()
                raise UserError(f"iteration {self.iteration - back}: the loss is {loss} on rank "
                                f"{self.communicator.rank}; lower base_lr, or go on with -allow-nan")

    def mean_over_ranks(self, values: list[float], n_parts: int | None = None) -> list[float]:
        """Sum each value over the ranks and divide. Called by all ranks.

        Args:
            values: this rank's; the same number on every rank. Summed in float64.
            n_parts: the divisor; the number of ranks if None.
        """
        sums = np.array(values, np.float64)
        if self.communicator.n_ranks > 1:
            with self.timers("communication"):
                self.communicator.allreduce(sums, "sum", "mpi")
        return [float(value) for value in sums / (n_parts or self.communicator.n_ranks)]
