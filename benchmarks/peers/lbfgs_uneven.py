"""Uneven replicas for ``benchmarks/sandblaster.py``: ``lbfgs_uneven.py WAY BASE_SECONDS N_STEPS``, five ranks.

The last rank is a server. Of four replicas the last takes four times as long for a portion, the third stops for 2 s now
and then; sleeps stand for computing. Prints a line of JSON: the time over total work / total speed.

Ways: "portions"; "no backup", where nothing is given out again; "quarters", where the batch is cut into four besides.
"""

import json
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

import h5py  # noqa: E402
import numpy as np  # noqa: E402
from google.protobuf import text_format  # noqa: E402

from scaffe import log  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.training.assembly import build_solver  # noqa: E402
from scaffe.training.lbfgs.portions import StragglerStatistics  # noqa: E402
from scaffe.training.strategies import WORKER, look_up  # noqa: E402

N_ROWS, N_PORTIONS, N_REPLICAS, N_WARM = 960, 48, 4, 4
STOP_SECONDS, STOP_EVERY = 2.0, 8.0
SLOW = (1, 1, 1, 4)
NET = """layer { name: "rows" type: "HDF5Data" top: "x" top: "y" hdf5_data_param { source: "FOLDER/rows.txt"
  batch_size: PORTION } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "p" inner_product_param { num_output: 10
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "p" bottom: "y" top: "loss" }"""


class Uneven:
    """Sleeps in every portion, and takes the time of all passes after the warm-up."""

    def __init__(self, replica, seconds, stops):
        self._seconds, self._stops, self._stopped = seconds * SLOW[replica], stops, time.perf_counter()
        self.stopped = self.started = self.ended = 0.0
        self.passes = [0, 0]

    def __getattr__(self, name):
        return lambda *_: None

    def sleep(self, layer):
        """One portion's computing."""
        if layer != 1:
            return
        if self._stops and time.perf_counter() - self._stopped > STOP_EVERY:
            time.sleep(STOP_SECONDS)
            self._stopped = time.perf_counter()
            self.stopped += STOP_SECONDS * bool(self.started)
        time.sleep(self._seconds)

    def after_iteration(self, solver):
        """See Observer."""
        if solver.iteration == N_WARM:
            self.started = time.perf_counter()
        self.ended = time.perf_counter()
        coordinator = solver.strategy._rank.coordinator
        if coordinator is not None:
            self.passes[solver.iteration > N_WARM] = coordinator.optimiser.progress.n_evaluations


def main():
    """Train, and print the ratio."""
    way, base, n_steps = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    communicator = Communicator.world()
    log.silence(True)
    if way != "portions":
        StragglerStatistics.is_late = lambda *_: False
    if way == "quarters":
        StragglerStatistics.is_too_slow = lambda *_: False
    folder = Path(communicator.bcast_object(tempfile.mkdtemp() if communicator.rank == 0 else None))
    n_portions = N_PORTIONS if way != "quarters" else N_REPLICAS
    if communicator.rank == 0:
        rng = np.random.default_rng(1)
        with h5py.File(folder / "rows.h5", "w") as file:
            file["x"] = rng.normal(size=(N_ROWS, 20)).astype(np.float32)
            file["y"] = rng.integers(0, 10, N_ROWS).astype(np.float32)
        (folder / "rows.txt").write_text(f"{folder}/rows.h5\n")
    communicator.barrier()
    param = text_format.Parse(f'type: "LBFGS" base_lr: 1 lr_policy: "fixed" max_iter: {n_steps} random_seed: 1 '
                              f'display: 0 weight_decay: 0.001 snapshot_after_train: false '
                              f'snapshot_prefix: "{folder}/run"',
                              caffe_pb2.SolverParameter())
    text = NET.replace("FOLDER", str(folder)).replace("PORTION", str(N_ROWS // n_portions))
    text_format.Parse(text, param.net_param)
    options = Namespace(strategy="auto", reduce="auto", wire="", scal="strong", threads=1, readers=1, level=0, stage="",
                        gpu="", allow_nan=False, skip_bad_records=0, servers=communicator.n_ranks - N_REPLICAS,
                        deterministic=False)
    kind = look_up("auto", "auto", communicator, solver_type="LBFGS")
    role = kind.roles.place(communicator, options)
    if role.kind != WORKER:
        kind.roles.serve(role, param, options)
        communicator.gather_objects(None)
        return
    solver = build_solver(role.ranks, param, options, role)
    uneven = Uneven(role.ranks.rank, base * N_PORTIONS / n_portions, role.ranks.rank == 2)
    solver.net.before_forward.append(uneven.sleep)
    solver.observers.append(uneven)
    solver.solve()
    stopped = communicator.gather_objects(uneven.stopped)
    solver.net.close()
    if communicator.rank == 0:
        coordinator = solver.strategy._rank.coordinator
        n_passes, stops = uneven.passes[1] - uneven.passes[0], sum(s for s in stopped if s)
        ideal = (n_passes * N_PORTIONS * base + stops) / sum(1 / slow for slow in SLOW)
        elapsed = uneven.ended - uneven.started
        print(json.dumps({"ratio": elapsed / ideal, "seconds": elapsed, "passes": n_passes, "stopped": stops,
                          "again": coordinator.portions.n_again, "late": coordinator.portions.n_dropped,
                          "fenced": coordinator.portions.n_fenced}))


if __name__ == "__main__":
    main()
