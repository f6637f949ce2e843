"""Tests the test nets every ``test_interval`` iterations, as Caffe does, or by average precision, as SSD's fork
does."""

from __future__ import annotations

import numpy as np

from scaffe.errors import UserError
from scaffe.log import info
from scaffe.nets.net import Net
from scaffe.training.observers.display import by_name, logged_lines, values_of
from scaffe.training.solver import Observer, Solver

EPS = 1e-6  # a step in recall that is none
VERSIONS = ("11point", "MaxIntegral", "Integral")


def check_version(version: str) -> None:
    """Raise UserError for an unknown ``ap_version``."""
    if version not in VERSIONS:
        raise UserError(f"the solver's ap_version {version!r} is unknown; known: {', '.join(VERSIONS)}")


def average_precision(scores: np.ndarray, hits: np.ndarray, n_positive: int, version: str) -> float:
    """The area under the curve of precision over recall. Returns from 0 to 1; 0 without detections or true boxes.

    Args:
        scores: (n,), of the detections of one class. Of equal scores the first counts first.
        version: "11point", the mean of the largest precisions at a recall of at least 0, 0.1, ... 1 (PASCAL VOC 2007);
            "MaxIntegral", the integral over recall of the largest precision at no smaller recall (VOC 2012, ILSVRC);
            "Integral", that of the precision itself.
    """
    if not len(scores) or not n_positive:
        return 0.0
    right = np.cumsum(hits[np.argsort(-scores, kind="stable")])
    precision, recall = right / np.arange(1, len(right) + 1), right / n_positive
    best = np.maximum.accumulate(precision[::-1])[::-1]
    if version == "11point":
        first = np.searchsorted(recall, np.arange(11) / 10 - EPS)
        return float(np.append(best, 0)[first].mean())
    steps = np.diff(recall, prepend=0)
    return float(((best if version == "MaxIntegral" else precision) * steps * (steps > EPS)).sum())


def class_precisions(rows: np.ndarray, version: str) -> dict[int, float]:
    """The average precision of each class. Returns label → average precision, labels ascending.

    Args:
        rows: (n, 5), what DetectionEvaluate gave for all images: (-1, label, number of true boxes, -1, -1) for each
            class and batch; (item, label, score, is right, is wrong) for each detection. Those neither right nor wrong
            do not count.
        version: as for ``average_precision``.
    """
    is_count = rows[:, 0] == -1
    counts, found = rows[is_count], rows[~is_count]
    found = found[(found[:, 3] != 0) | (found[:, 4] != 0)]
    precisions = {}
    for label in np.unique(counts[:, 1]):
        mine = found[found[:, 1] == label]
        n_positive = int(counts[counts[:, 1] == label, 2].sum())
        precisions[int(label)] = average_precision(mine[:, 2], mine[:, 3], n_positive, version)
    return precisions


COLUMNS = 5  # of DetectionEvaluate's top


def detected(solver: Solver, net: Net, n_iterations: int) -> tuple[float, list[str], dict[str, float]]:
    """Run test iteration t on rank t mod P, for P ranks, and evaluate what they found together. Returns the mean loss;
    the lines that tell each output's mean average precision, and those of classes if asked for; and the mean average
    precisions by the outputs' names."""
    rank, n_ranks = solver.communicator.rank, solver.communicator.n_ranks
    loss, mine = 0.0, []
    for iteration in range(rank, n_iterations, n_ranks):
        loss += float(solver.test_forward(net))
        mine.append((iteration, results_of(net)))
    parts = sorted((part for rows in solver.communicator.allgather_objects(mine) for part in rows),
                   key=lambda part: part[0])
    lines, means = [], {}
    for number, (name, by_class) in enumerate(precisions(net, [part for _, part in parts], solver.param.ap_version)):
        if solver.param.show_per_class_result:
            lines += [f"class{label}: {precision:g}" for label, precision in by_class.items()]
        means[name] = mean_of(by_class)
        lines.append(f"    Test net output #{number}: {name} = {means[name]:g}")
    return solver.mean_over_ranks([loss], solver.communicator, n_iterations)[0], lines, means


def is_evaluated(net: Net) -> bool:
    """Whether all outputs of a net are tops of DetectionEvaluate layers."""
    tops = {name for node in net.nodes if node.param.type == "DetectionEvaluate" for name in node.top_names}
    return bool(net.output_names) and tops >= set(net.output_names)


def results_of(net: Net) -> list[np.ndarray]:
    """What each output says of one batch, on the host: float64 (n, 5)."""
    return [np.array(net.context.kernels.to_host(blob.data), np.float64).reshape(-1, COLUMNS)
            for _, blob, _ in net.outputs()]


def precisions(net: Net, batches: list[list[np.ndarray]], version: str) -> list[tuple[str, dict[int, float]]]:
    """Each output's name and the average precisions of its classes, from ``results_of`` all batches."""
    return [(name, class_precisions(np.concatenate([np.zeros((0, COLUMNS)), *(batch[number] for batch in batches)]),
                                    version)) for number, (name, _, _) in enumerate(net.outputs())]


def mean_of(by_class: dict[int, float]) -> float:
    """The mean average precision."""
    return sum(by_class.values()) / max(1, len(by_class))


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
            if not is_evaluated(net):
                raise UserError('eval_type "detection" wants outputs of DetectionEvaluate layers alone; the test '
                                f"net's are {', '.join(net.output_names)}")

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
            solver.tell("measured", f"test_{number}" if number else "test", values)


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
