"""Our ranks for ``benchmarks/asynchronous.py``: ``late_ours.py BASE_SECONDS N_ITERATIONS WAY,...``.

A way is a strategy, or ssp:SLACK. Each iteration trains a small net and sleeps besides. For every way and lateness
rank 0 prints a line of JSON: the workers' images per second, each over its own time, summed.
"""

import json
import math
import sys
import time
from argparse import Namespace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from google.protobuf import text_format  # noqa: E402
from lateness import KINDS, seconds  # noqa: E402

from scaffe import log  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.training.assembly import build_solver  # noqa: E402
from scaffe.training.solver import Observer  # noqa: E402
from scaffe.training.strategies import look_up  # noqa: E402

N_WARM = 10
BATCH = 16  # of a rank
NET = f"""layer {{ name: "d" type: "DummyData" top: "x" top: "y" dummy_data_param {{ shape {{ dim: {BATCH} dim: 256 }}
  shape {{ dim: {BATCH} }} data_filler {{ type: "gaussian" }} data_filler {{ type: "constant" value: 1 }} }} }}
layer {{ name: "ip1" type: "InnerProduct" bottom: "x" top: "h" inner_product_param {{ num_output: 256
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "r" type: "ReLU" bottom: "h" top: "h" }}
layer {{ name: "ip2" type: "InnerProduct" bottom: "h" top: "p" inner_product_param {{ num_output: 10
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "p" bottom: "y" top: "loss" }}"""


class Late(Observer):
    """Sleeps in every iteration as the lateness says, and takes the time from the end of the warm-up on."""

    def __init__(self, communicator: Communicator, kind: str, base: float) -> None:
        self._communicator, self._kind, self._base = communicator, kind, base
        self.started = self.ended = 0.0

    def before_iteration(self, solver):
        """See Observer."""
        if solver.iteration == N_WARM:
            self.started = time.perf_counter()
        n_ranks = self._communicator.n_ranks
        solver.net.before_forward[:] = [hook for hook in solver.net.before_forward if hook != self._sleep]
        self._seconds = seconds(self._kind, self._communicator.rank, solver.iteration, n_ranks, self._base)
        solver.net.before_forward.append(self._sleep)

    def after_iteration(self, solver):
        """See Observer."""
        self.ended = time.perf_counter()

    def _sleep(self, layer):
        if layer == 1:  # the first that has parameters, and they have come
            time.sleep(self._seconds)


def measure(communicator, way, kind, base, n_iterations):
    """Train one way. Returns the workers' images per second, summed."""
    strategy, _, slack = way.partition(":")
    param = text_format.Parse(f'base_lr: 0.01 lr_policy: "fixed" max_iter: {n_iterations + N_WARM} random_seed: 1 '
                              'display: 0', caffe_pb2.SolverParameter())
    text_format.Parse(NET, param.net_param)
    options = Namespace(strategy=strategy, reduce="auto", wire="", bucket="auto", scal="strong", threads=1, readers=1,
                        level=0, stage="", gpu="", allow_nan=False, skip_bad_records=0, servers=0,
                        slack=float(slack or 0) if slack != "inf" else math.inf)
    role = look_up(strategy, "auto", communicator).roles.place(communicator, options)
    solver = build_solver(role.ranks, param, options, role)
    late = Late(role.ranks, kind, base)
    solver.observers.append(late)
    solver.solve()
    return sum(communicator.allgather_objects(BATCH * n_iterations / (late.ended - late.started)))


def main():
    """Measure all ways under every lateness."""
    communicator = Communicator.world()
    log.silence(True)
    for kind in KINDS:
        for way in sys.argv[3].split(","):
            rate = measure(communicator, way, kind, float(sys.argv[1]), int(sys.argv[2]))
            if communicator.rank == 0:
                print(json.dumps([way, kind, rate]), flush=True)


if __name__ == "__main__":
    main()
