"""Tests the test nets every ``test_interval`` iterations; the ranks divide the test iterations among them."""

from __future__ import annotations

from scaffe.errors import UserError
from scaffe.log import info
from scaffe.nets.net import Net
from scaffe.training.observers.detection import check_outputs, check_version, detected
from scaffe.training.observers.display import by_name, logged_lines, values_of
from scaffe.training.solver import Observer, Solver

DETECTION = "detection"
EVALUATIONS = ("classification", DETECTION)


class Test(Observer):
    """Runs test iteration t on rank t mod P, for P ranks, and logs the means over all iterations as one rank would.
    Where ranks share nets, it is a replica's ranks that run an iteration together.

    With ``eval_type: "detection"`` it logs mean average precisions instead (SSD).
    """

    def begin(self, solver: Solver) -> None:
        """See Observer. Raises UserError for an unknown ``eval_type``, or nets that do not fit it."""
        if solver.param.eval_type not in EVALUATIONS:
            raise UserError(f"the solver's eval_type {solver.param.eval_type!r} is unknown; known: "
                            + ", ".join(EVALUATIONS))
        check_version(solver.param.ap_version)
        for net in solver.test_nets if solver.param.eval_type == DETECTION else ():
            check_outputs(net)

    def before_iteration(self, solver: Solver) -> None:
        interval, iteration = solver.param.test_interval, solver.iteration
        if interval and iteration % interval == 0 and (iteration or solver.param.test_initialization):
            self.test_all(solver)

    def finish(self, solver: Solver) -> None:
        interval = solver.param.test_interval
        if interval and solver.iteration % interval == 0 and not solver.stopping:
            self.test_all(solver)

    def test_all(self, solver: Solver) -> None:
        """Test every test net with the newest parameters. Called by all ranks."""
        solver.strategy.synchronize_parameters()
        solver.net.params.fetch_all()
        evaluate = detected if solver.param.eval_type == DETECTION else means
        for number, net in enumerate(solver.test_nets):
            net.note_written()
            info(f"Iteration {solver.iteration}, Testing net (#{number})")
            with solver.timers("test"):
                loss, lines, values = evaluate(solver, net, solver.param.test_iter[number])
            if solver.param.test_compute_loss:
                info(f"Test loss: {loss:g}")
            for line in lines:
                info(line)
            solver.report(f"test_{number}" if number else "test", values)


def means(solver: Solver, net: Net, n_iterations: int) -> tuple[float, list[str], dict[str, float]]:
    """The mean loss over all test iterations, the lines that tell the outputs' means, and these by name. Called by all
    ranks."""
    n_sharing = solver.communicator.n_ranks // solver.n_replicas
    total_loss, sums = 0.0, [0.0] * sum(blob.n_elems for _, blob, _ in net.outputs())
    for _ in range(solver.replica, n_iterations, solver.n_replicas):
        total_loss += solver.test_forward(net)
        values = values_of(net)
        if len(values) != len(sums):
            raise UserError(f"the test net's outputs had {len(sums)} numbers, now {len(values)}, so they have no mean; "
                            'for nets that detect objects give eval_type: "detection"')
        sums = [s + v for s, v in zip(sums, values, strict=True)]
    loss, *values = solver.mean_over_ranks([float(total_loss), *sums], solver.communicator, n_iterations * n_sharing)
    return loss, list(logged_lines(net, values, "Test")), by_name(net, values)
