"""Tests the test nets every ``test_interval`` iterations; the ranks divide the test iterations among them."""

from __future__ import annotations

from scaffe.log import info
from scaffe.nets.net import Net
from scaffe.training.observers.outputs import log_outputs, values_of
from scaffe.training.solver import Observer, Solver


class Test(Observer):
    """Runs test iteration t on rank t mod P, for P ranks, and logs the means over all iterations as one rank would."""

    def before_iteration(self, solver: Solver) -> None:
        """See Observer."""
        interval, iteration = solver.param.test_interval, solver.iteration
        if interval and iteration % interval == 0 and (iteration or solver.param.test_initialization):
            self.test_all(solver)

    def finish(self, solver: Solver) -> None:
        """See Observer."""
        interval = solver.param.test_interval
        if interval and solver.iteration % interval == 0 and not solver.stopping:
            self.test_all(solver)

    def test_all(self, solver: Solver) -> None:
        """Test every test net with the newest parameters. Called by all ranks."""
        solver.strategy.settle()
        for number, net in enumerate(solver.test_nets):
            info(f"Iteration {solver.iteration}, Testing net (#{number})")
            with solver.timers("test"):
                values, loss = self._test(solver, net, solver.param.test_iter[number])
            if solver.param.test_compute_loss:
                info(f"Test loss: {loss:g}")
            log_outputs(net, values, "Test")

    def _test(self, solver: Solver, net: Net, n_iterations: int) -> tuple[list[float], float]:
        rank, n_ranks = solver.communicator.rank, solver.communicator.n_ranks
        total_loss, sums = 0.0, [0.0] * sum(blob.n_elems for _, blob, _ in net.outputs())
        for _ in range(rank, n_iterations, n_ranks):
            total_loss += net.forward()
            sums = [s + v for s, v in zip(sums, values_of(net), strict=True)]
        loss, *values = solver.mean_over_ranks([float(total_loss), *sums], n_iterations)
        return values, loss
