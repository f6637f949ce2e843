"""Our ranks for ``benchmarks/asynchronous.py accuracy``: ``accuracy_ours.py RUNS.json OUT.jsonl``.

The ranks train every run of the file, one after the other, so that they start once. Rank 0 adds a line of JSON for
each: (images, seconds, accuracy) at every test, the tests' own seconds left out, and how old the parameters were.
"""

import json
import sys
import time
from argparse import Namespace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from asynchrony.runs import Run  # noqa: E402
from google.protobuf import text_format  # noqa: E402

from scaffe import log  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.collectives.failure import install_excepthook  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.training.assembly import build_solver  # noqa: E402
from scaffe.training.observers.test import means  # noqa: E402
from scaffe.training.solver import Observer  # noqa: E402
from scaffe.training.strategies import look_up  # noqa: E402


class Points(Observer):
    """Tests between, and notes the accuracy with the images and the seconds of training before it."""

    def __init__(self, run: Run) -> None:
        self.points: list[tuple[int, float, float]] = []
        self._run, self._testing, self._tested = run, 0.0, -1

    def begin(self, solver):
        """See Observer."""
        self._begun = time.perf_counter()

    def before_iteration(self, solver):
        """See Observer."""
        if solver.iteration and solver.iteration % solver.param.test_interval == 0:
            self._test(solver)

    def finish(self, solver):
        """See Observer."""
        if self._tested < solver.iteration:
            self._test(solver)

    def _test(self, solver):
        solver.strategy.synchronize_parameters()
        started = time.perf_counter()
        seconds = started - self._begun - self._testing
        _, lines, _ = means(solver, solver.test_nets[0], solver.param.test_iter[0])
        accuracy = next(float(line.split("accuracy = ")[1]) for line in lines if "accuracy = " in line)
        self.points.append((self._run.images_after(solver.iteration), seconds, accuracy))
        self._testing += time.perf_counter() - started
        self._tested = solver.iteration


def train(communicator, run):
    """Train one run. Returns its points, and the mean and the largest staleness, in clocks."""
    options = Namespace(reduce="auto", wire="", bucket="auto", threads=1, readers=1, level=0, stage="", gpu="",
                        allow_nan=True, skip_bad_records=0, servers=0, **run.options)
    param = text_format.Parse(run.solver, caffe_pb2.SolverParameter())
    role = look_up(options.strategy, "auto", communicator).roles.place(communicator, options)
    solver = build_solver(role.ranks, param, options, role)
    points = Points(run)
    solver.observers.append(points)
    solver.solve()
    for net in (solver.net, *solver.test_nets):
        net.close()
    figures = getattr(solver.strategy, "figures", None)
    own = (figures.staleness, figures.n_pulls, figures.stalest) if figures else (0, 0, 0)
    found = communicator.allgather_objects(own)
    return points.points, [sum(f[0] for f in found) / max(sum(f[1] for f in found), 1), max(f[2] for f in found)]


def main():
    """Train all runs."""
    communicator = Communicator.world()
    install_excepthook(communicator)
    log.silence(True)
    for described in json.loads(Path(sys.argv[1]).read_text()):
        run = Run(**described)
        points, staleness = train(communicator, run)
        if communicator.rank == 0:
            row = {"part": "accuracy", "net": run.net, "way": run.way, "workers": run.workers, "seed": run.seed,
                   "images": run.images, "points": points, "staleness": staleness}
            with Path(sys.argv[2]).open("a") as out:
                out.write(json.dumps(row) + "\n")
            print(f"{run.net} {run.way:24s} {run.workers:2d} workers, seed {run.seed}: accuracy {points[-1][2]:.3f}, "
                  f"{points[-1][1]:6.1f} s, staleness {staleness[0]:.2f}, {staleness[1]} at most", flush=True)


if __name__ == "__main__":
    main()
