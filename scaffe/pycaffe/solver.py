"""pycaffe's solvers. Under mpirun every rank creates one, and the ranks train together as with `scaffe train`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any, ClassVar

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.data.feeds.layer_feed import Share
from scaffe.nets import graph
from scaffe.nets.weights import initial_weights, load_weights
from scaffe.pycaffe import process
from scaffe.pycaffe.net import Net
from scaffe.pycaffe.notebook import StepLine, kernel_shell
from scaffe.training import solver
from scaffe.training.assembly import NetMaker, images_per_pass
from scaffe.training.checkpoint import restore_checkpoint, save_checkpoint
from scaffe.training.observers.display import DebugInfo, Display
from scaffe.training.observers.snapshots import Snapshots
from scaffe.training.observers.test import Test
from scaffe.training.ranks import AUTO, most_readers, threads_per_rank, together

OPTIONS = {"level": None, "stage": "", "scal": "strong", "readers": AUTO}


class Solver:
    """A solver built from its prototxt (Caffe 1.0, pycaffe).

    Args:
        solver_file: the solver's prototxt.
        allow_nan: continue when the loss is not finite.

    Attributes:
        net, test_nets: the training net and the test nets, as ``Net``.
        param: the SolverParameter message; changes to it take effect from the next iteration on.

    Raises:
        UserError: the prototxt is wrong; one line names file and mistake. It is also a ValueError.
    """

    type: ClassVar[str] = ""  # the class's solver type, which overrides the prototxt's

    def __init__(self, solver_file: str, allow_nan: bool = False) -> None:
        communicator = Communicator.world()
        if communicator.rank:
            log.silence(True)
        self.param = graph.read_solver(solver_file)
        self.param.type = self.type or self.param.type
        self._built = self._build(communicator, allow_nan)
        self._built.observers += [DebugInfo()] * self.param.debug_info + [Test(), Display(), Snapshots()]
        self._begun = False
        self._line = self._add_line(communicator)
        self.net = Net.of(self._built.net)
        self.test_nets = [Net.of(test) for test in self._built.test_nets]

    def _add_line(self, communicator: Communicator) -> StepLine | None:
        """The line that a notebook shows."""
        shell = kernel_shell()
        if shell is None or communicator.rank:
            return None
        line = StepLine(shell, images_per_pass(self._built.net) * self.param.iter_size * communicator.n_ranks)
        self._built.observers.append(line)
        return line

    def _build(self, communicator: Communicator, allow_nan: bool) -> solver.Solver:
        if self.param.random_seed >= 0:
            process.set_random_seed(self.param.random_seed + communicator.rank)
        seed = communicator.bcast_object(process.seed())
        n_threads = threads_per_rank(communicator, process.chosen_threads())
        kernels, self.param.random_seed = process.kernels(n_threads), seed
        maker = NetMaker(self.param, Namespace(**OPTIONS, precision=process.precision()), kernels, process.stream(),
                         Share(communicator.rank, communicator.n_ranks))
        maker.most_readers = most_readers(communicator, kernels)
        net = together(communicator, maker.train_net)
        tests = together(communicator, lambda: maker.test_nets(net))
        for path in initial_weights("", self.param):
            load_weights(net, path)
        built = solver.Solver(self.param, net, tests, communicator, solver.Method(allow_nan=allow_nan), maker.shares)
        built.updater.keeps_step = True  # scripts look at params' diffs after a step
        return built

    @property
    def _solver(self) -> solver.Solver:
        """The solver itself; what the user wrote into the nets' arrays has been copied to the device."""
        for view in (self.net, *self.test_nets):
            _ = view._net
        self._built.net.note_written()  # what the solver does next changes the parameters
        return self._built

    @property
    def iter(self) -> int:
        """Number of iterations done."""
        return self._built.iteration

    @property
    def lr(self) -> float:
        """The learning rate of the next iteration."""
        return self._solver.rates.before(self.iter)

    def step(self, n_iterations: int) -> None:
        """Train ``n_iterations``, with the displays, tests and snapshots that fall into them. A notebook shows a line
        about it. Raises UserError."""
        if not self._begun:
            self._begun = True
            for observer in self._solver.observers:
                observer.begin(self._solver)
            self._solver.strategy.begin()
        if self._line is not None:
            self._line.start(self._solver, n_iterations)
        self._solver.step(n_iterations)
        self._solver.strategy.synchronize_parameters()

    def solve(self, resume_file: str | None = None) -> None:
        """Train up to ``max_iter``, resuming from a ``.solverstate`` if one is given. Raises UserError."""
        if resume_file:
            self.restore(resume_file)
        self._begun = True
        if self._line is not None:
            self._line.start(self._solver, self.param.max_iter - self.iter)
        self._solver.solve()

    def restore(self, path: str) -> None:
        """Restore weights and solver state from a ``.solverstate``. Raises UserError."""
        restore_checkpoint(self._solver, path)

    def snapshot(self) -> None:
        """Write the weights and the solver's state under ``snapshot_prefix``. Raises UserError."""
        save_checkpoint(self._solver)

    def apply_update(self) -> None:
        """Update the parameters from their current diffs at this iteration's rate, and add 1 to ``iter``."""
        self._solver.net.params.write_all_cleared_diffs()
        self._solver.strategy.gradients_ready()
        if self.param.display and self.iter % self.param.display == 0:
            log.info(f"Iteration {self.iter}, lr = {self.lr:g}")
        self._solver.strategy.apply(self.lr, self.iter)
        self._solver.strategy.synchronize_parameters()
        self._solver.iteration += 1

    def share_weights(self, net: Net) -> None:
        """Make another net share the training net's parameters. Raises ValueError if shapes differ."""
        net.share_with(self.net)

    def add_callback(self, on_start: Callable[[], Any], on_gradients_ready: Callable[[], Any]) -> None:
        """Call ``on_start()`` before each iteration's passes and ``on_gradients_ready()`` before its update."""
        self._solver.observers.append(_Callback(on_start, on_gradients_ready, lambda: self._solver))


class _Callback(solver.Observer):
    def __init__(self, on_start: Callable[[], Any], on_gradients_ready: Callable[[], Any],
                 take_over: Callable[[], Any]) -> None:
        self._on_start, self._on_gradients_ready, self._take_over = on_start, on_gradients_ready, take_over

    def before_iteration(self, solver: solver.Solver) -> None:
        self._on_start()
        self._take_over()

    def gradients_ready(self, solver: solver.Solver, loss: float, rate: float) -> None:
        self._on_gradients_ready()
        self._take_over()


class SGDSolver(Solver):
    """Stochastic gradient descent with momentum."""

    type = "SGD"


class NesterovSolver(SGDSolver):
    """Nesterov's accelerated gradient."""

    type = "Nesterov"


class AdaGradSolver(SGDSolver):
    """AdaGrad."""

    type = "AdaGrad"


class RMSPropSolver(SGDSolver):
    """RMSProp."""

    type = "RMSProp"


class AdaDeltaSolver(SGDSolver):
    """AdaDelta."""

    type = "AdaDelta"


class AdamSolver(SGDSolver):
    """Adam."""

    type = "Adam"


KINDS = {kind.type: kind for kind in (SGDSolver, NesterovSolver, AdaGradSolver, RMSPropSolver, AdaDeltaSolver,
                                      AdamSolver)}


def get_solver(solver_file: str, allow_nan: bool = False) -> Solver:
    """Create the solver of the type that the prototxt names. Raises UserError."""
    return KINDS.get(graph.read_solver(solver_file).type, Solver)(solver_file, allow_nan)
