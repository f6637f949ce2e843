"""The training loop, and what it is made of: nets, an update rule, a strategy, observers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import UserError
from scaffe.files import SolverState
from scaffe.layers.kernels.backend import is_device
from scaffe.log import info
from scaffe.nets.cuda_graphs import Recorded
from scaffe.nets.net import Net
from scaffe.training.fault_tolerance.recovery_state_machine import RanksReady, RecoveryStateMachine
from scaffe.training.learning_rate import rates_of
from scaffe.training.partition.layers.redistribution import send_back_early
from scaffe.training.partition.sums import IntraReplicaSums
from scaffe.training.strategies import Replica, Role, Strategy, look_up
from scaffe.training.strategies.roles import IntraReplica
from scaffe.training.timers import Timers
from scaffe.training.updater import Updater


@dataclass(frozen=True)
class Method:
    """How ranks train together.

    Attributes:
        strategy: a strategy's name ("sc-b"), or "auto".
        algorithm: the collective algorithm that it reduces and broadcasts with ("mpi", "CB-8", "auto").
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
            loss: this rank's mean loss over the iteration's passes.
            rate: the iteration's learning rate.
        """

    def after_iteration(self, solver: Solver) -> None:
        """After the update; ``solver.iteration`` counts this iteration already."""

    def measured(self, solver: Solver, phase: str, values: dict[str, float]) -> None:
        """After a display or a test.

        Args:
            phase: "train", "test", or "test_1" and so on for further test nets.
            values: means over the ranks, by name.
        """

    def finish(self, solver: Solver) -> None:
        """Once, at the end of ``solve``; not called after an error."""

    def kept(self, solver: Solver) -> dict[str, int]:
        """What a snapshot saves for this observer: names and values of SolverState fields. Called by all ranks."""
        return {}

    def restore(self, state: SolverState) -> None:
        """Take back what ``kept`` saved; called before ``begin`` when a run resumes."""


class Solver:
    """One rank's part in training a net. Raises UserError if the solver's numbers, learning rate policy or type, or the
    method's strategy or algorithm, are not known or not usable.

    Args:
        param: the SolverParameter message, upgraded.
        test_nets: nets to test; they use the training net's parameters.
        communicator: the ranks that train together, each with a net.
        shares: which part of the data each net of this rank reads; a run that resumes moves them on.
        role: what this rank does, as the strategy has placed it; None where all ranks are workers.

    Attributes:
        machine: this rank's part in recovery when another one is lost.
        replica, n_replicas: the number of this rank's net, which others may share with it, and how many nets there are.
        stopping: set by an observer, on all ranks at once, to end training after this iteration.
        are_ranks_ready: whether this rank knows of ranks that wait to join.
        pauses: set by an observer, on all ranks at once, to let them join after this iteration.
        remake_tests: makes test nets that share the data out over the ranks that are left.
        test_passes: what runs a test net's forward in its place, by the net's id: recordings where its kernels record.
    """

    def __init__(self, param: Any, net: Net, test_nets: list[Net], communicator: Communicator,
                 method: Method | None = None, shares: Sequence[Share] = (), role: Role | None = None) -> None:
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
        self.rates = rates_of(param)
        division = None if role is None else role.division
        sharing = communicator if division is None else division.peers
        if net.context.param_memory is None:
            net.params.move(partial(sharing.alloc, memory=net.context.kernels.PLACE))
        elif not net.params.waits_on_host:
            sharing.algorithms.choose_as_if_shared()  # memory that a plan moves is private
        if is_device(net.context.kernels) and net.context.dtype != net.params.dtype:
            net.params.copy_for_kernels(net.context.kernels, net.context.dtype)
        for test_net in test_nets:
            test_net.share_trained_layers(net)
        self.test_passes: dict[int, Any] = {id(test_net): Recorded(test_net, (), backward=False)
                                            for test_net in test_nets if net.context.kernels.RECORDS}
        self.updater = Updater(param, net.params, net.context.kernels)
        self.strategy = self._make_strategy(self.method, role, sharing)
        self.updater.own(self.strategy.state.owned(), self.strategy.state.copied())
        self.machine = RecoveryStateMachine(counts_updates=self.strategy.fault_tolerance.counts_updates)
        self._rate = 0.0
        self.replica, self.n_replicas = ((communicator.rank, communicator.n_ranks) if division is None else
                                         (division.replica, division.n_replicas))
        self.remake_tests: Callable[[], None] = lambda: None
        self.are_ranks_ready: Callable[[], bool] = lambda: False
        self.pauses = False

    def _make_strategy(self, method: Method, role: Role | None, sharing: Communicator) -> Strategy:
        division = None if role is None else role.division
        intra_replica = IntraReplica()
        if division is not None:
            intra_replica = IntraReplicaSums(self.net, division.sums, self.timers)
            division.group.timers = self.timers
            send_back_early(self.net)
        kind = look_up(method.strategy, method.algorithm, sharing,
                       self.net.context.kernels.PLACE == "device", self.param.type or "SGD")
        made = kind(Replica(self.net, self.updater, sharing, self.timers, self.param.iter_size,
                            method.algorithm, method.options, role, intra_replica))
        made.fault_tolerance.on_shrink = self._on_shrink
        if self.net.context.kernels.RECORDS:
            made.passes = Recorded(self.net, made.hook_points)
        if made.acts_between_layers:
            self.net.before_forward.append(made.before_forward)
            self.net.after_backward.append(made.after_backward)
        return made

    def _on_shrink(self, workers: Communicator) -> None:
        self.communicator, self.replica, self.n_replicas = workers, workers.rank, workers.n_ranks
        self.remake_tests()

    def test_forward(self, test_net: Net) -> Any:
        """Run one of the test nets forward, by ``test_passes`` where nothing is read between layers.
        Returns the loss: a number, on a device one that ``float`` waits for."""
        passes = None if test_net.unfused else self.test_passes.get(id(test_net))
        return test_net.forward() if passes is None else passes.forward()

    def solve(self) -> None:
        """Train up to ``max_iter``, then display and test the result as Caffe does."""
        info(f"Solving {self.net.name}")
        info(f"Learning Rate Policy: {self.param.lr_policy}")
        self.tell("begin")
        self.strategy.begin()
        self.step(self.param.max_iter - self.iteration)
        self.strategy.synchronize_parameters()
        self.tell("finish")
        self.strategy.finish()
        info("Optimization stopped early." if self.stopping else "Optimization Done.")

    def step(self, n_iterations: int) -> None:
        """Train this many more iterations, or fewer if an observer sets ``stopping``.
        Raises RanksReady on all ranks, after the same iteration, where an observer has set ``pauses``."""
        end = self.iteration + n_iterations
        while self.iteration < end and not self.stopping and not self.strategy.has_converged:
            self.tell("before_iteration")
            rate = self.rates.before(self.iteration)
            loss = self.strategy.iterate(rate, self.iteration)
            self._unchecked.append(loss)
            if len(self._unchecked) >= self.net.context.kernels.CHECK_EVERY:
                self.check_losses()
            rate = self.rates.after(partial(self._mean_loss, loss), self.iteration, rate)
            self._rate = rate
            self.machine.prepared()
            self.tell("gradients_ready", loss, rate)  # here all ranks meet: they agree on signals
            self.update()
            self.machine.taken()
            self.tell("after_iteration")
            if self.pauses and not self.stopping and self.iteration < end:
                self.strategy.synchronize_parameters()
                raise RanksReady
        self.check_losses()

    def update(self) -> None:
        self.strategy.apply(self._rate, self.iteration)
        self.iteration += 1

    def _mean_loss(self, loss: float) -> float:
        """The mean over all ranks of an iteration's loss. Called by all of them.
        Raises UserError if the strategy's ranks are not in step."""
        if self.strategy.in_step.peers.n_ranks < self.communicator.n_ranks:
            raise UserError(f"lr_policy {self.param.lr_policy!r} follows the loss of all ranks, so it is not for a "
                            "strategy whose ranks are not in step")
        return self.mean_over_ranks([float(loss)], self.communicator)[0]

    def tell(self, event: str, *values: Any) -> None:
        """Call one of the methods of all observers."""
        for observer in self.observers:
            self.strategy.fault_tolerance.guard(partial(getattr(observer, event), self, *values))

    def close(self) -> None:
        for net in (self.net, *self.test_nets):
            net.close()

    def check_losses(self) -> None:
        """Check that the losses since the last check are finite. On a GPU this waits for the device, so it is done
        only every ``CHECK_EVERY`` iterations.
        Raises UserError if a loss is nan or infinite, and ``allow_nan`` is not set."""
        losses, self._unchecked = [float(loss) for loss in self._unchecked], []
        self.communicator.check_lost()  # what its collectives did not write is no loss that diverges
        for back, loss in enumerate(reversed(losses)):
            if not math.isfinite(loss) and not self.method.allow_nan:
                self.net.check_values()
                raise UserError(f"iteration {self.iteration - back}: the loss is {loss} on rank "
                                f"{self.communicator.rank}; lower base_lr, or go on with -allow-nan")

    def mean_over_ranks(self, values: list[float], ranks: Communicator, n_parts: int | None = None) -> list[float]:
        """Sum each value over ranks and divide. Called by all of them.

        Args:
            values: this rank's; the same number on every rank. Summed in float64.
            ranks: those to sum over: all that train, if they are in step now, or the strategy's ``in_step.peers``.
            n_parts: the divisor; the number of ranks if None.
        """
        sums = np.array(values, np.float64)
        if ranks.n_ranks > 1:
            with self.timers("communication"):
                ranks.allreduce(sums, "sum", "mpi")
        return [float(value) for value in sums / (n_parts or ranks.n_ranks)]
