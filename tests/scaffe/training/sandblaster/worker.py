"""One rank of the test of L-BFGS: trains linear regressions in many ways; rank 0 writes what came out.

    mpirun -np N python -m tests.scaffe.training.sandblaster.worker FOLDER [RANK:PASS,...]

With pairs after the folder it does one run only, in which these ranks are killed in these forward passes.
"""

import os
import pickle
import signal
import sys
from argparse import Namespace
from functools import partial
from itertools import count
from pathlib import Path

import h5py
import numpy as np
from google.protobuf import text_format

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from scaffe.training.checkpoint import restore_checkpoint
from scaffe.training.observers.snapshots import Snapshots
from scaffe.training.observers.test import Test
from scaffe.training.strategies import WORKER, look_up

N_ROWS, PORTION, L2, L1 = 60, 7, 0.05, 0.3
N_STEPS = 24
TESTS = 1000
MULTS = ((1, 1), (1, 0.5))
NET = f"""layer {{ name: "rows" type: "HDF5Data" top: "x" top: "y"
  hdf5_data_param {{ source: "FOLDER/rows.txt" batch_size: 12 }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {{ num_output: 2 }}
  param {{ lr_mult: {MULTS[0][0]} decay_mult: {MULTS[0][1]} }}
  param {{ lr_mult: {MULTS[1][0]} decay_mult: {MULTS[1][1]} }} }}
layer {{ name: "frozen" type: "Scale" bottom: "ip" top: "scaled" scale_param {{ filler {{ value: 1 }} }}
  param {{ lr_mult: 0 }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "scaled" bottom: "y" top: "loss" }}"""
SOLVER = (f'type: "LBFGS" base_lr: 0.5 lr_policy: "fixed" max_iter: {N_STEPS} random_seed: 3 display: 0 '
          f'weight_decay: {L2} snapshot_after_train: false lbfgs_param {{ portion: {PORTION} bundle: 2 history: 5 }}')
STEADY = {"deterministic": True}
RUNS = {
    "plain": ({}, ""), "steady": (STEADY, ""), "l1": ({}, f'regularization_type: "L1" weight_decay: {L1}'),
    "no decay": ({}, "weight_decay: 0"), "servers": ({"servers": 1}, ""),
    "steady servers": (STEADY | {"servers": 1}, ""),
    "part": ({}, "lbfgs_param { batch: 24 }"), "net's batch": ({}, "lbfgs_param { portion: 0 }"),
    "uncached": (STEADY, "lbfgs_param { cache_mb: 0 }"),
    "12 steps": (STEADY, "max_iter: 12"), "6 of 12": (STEADY, "max_iter: 6 snapshot_after_train: true"),
    "killed": (STEADY | {"servers": 1, "on_rank_loss": "shrink"}, "test_iter: 5 test_interval: 3"),
    "then 6": (STEADY, "max_iter: 12"), "then 6 of L1": (STEADY, 'max_iter: 12 regularization_type: "L1"'),
}


def rows():
    """A regression whose columns have different scales, with noise."""
    rng = np.random.RandomState(11)
    x = rng.randn(N_ROWS, 5) * [1, 2, 0.5, 1, 0.1]
    y = x @ rng.randn(5, 2) + [3, -1] + 0.1 * rng.randn(N_ROWS, 2)
    return x.astype(np.float32), y.astype(np.float32)


def write_rows(folder):
    """The regression as a net's data."""
    x, y = rows()
    with h5py.File(folder / "rows.h5", "w") as file:
        file["x"], file["y"] = x, y
    (folder / "rows.txt").write_text(f"{folder}/rows.h5\n")


def options_of(**flags):
    return Namespace(**{"strategy": "auto", "reduce": "auto", "wire": "", "bucket": "auto", "scal": "strong",
                        "threads": 1, "readers": 1, "level": 0, "stage": "", "gpu": "", "allow_nan": False,
                        "skip_bad_records": 0,
                        "slack": 0.0, "servers": 0, "deterministic": False} | flags)


def train(communicator, folder, name, dies_at=0):
    """One run, in which this rank may be killed.

    Returns weights, losses of all iterations and the coordinator's counts, on rank 0.
    """
    flags, text = RUNS[name]
    param = text_format.Merge(text, text_format.Parse(SOLVER, caffe_pb2.SolverParameter()))
    text_format.Parse(NET.replace("FOLDER", str(folder)), param.net_param)
    param.snapshot_prefix = f"{folder}/run"
    options = options_of(**flags)
    kind = look_up("auto", "auto", communicator, solver_type="LBFGS")
    role = kind.roles.place(communicator, options)
    if role.kind != WORKER:
        kind.roles.serve(role, param, options)
        return None
    with role.ending_all():
        solver = build_solver(role.ranks, param, options, role)
        if name.startswith("then"):
            restore_checkpoint(solver, f"{folder}/run_iter_6.solverstate")
        watch, passes = Watch(), count()
        solver.net.before_forward += [partial(meet, count(), role.ranks), partial(die, passes, dies_at)]
        for net in solver.test_nets:
            net.before_forward.append(partial(die, count(TESTS), dies_at))
        solver.observers += [Snapshots(), watch, *[Test()][:len(solver.test_nets)]]
        solver.solve()
        ranks = solver.communicator
        same = len(set(ranks.allgather_objects(solver.net.params.data.tobytes()))) == 1
        steps, n_passes = ranks.allgather_objects(solver.iteration), ranks.allgather_objects(next(passes))
        for net in (solver.net, *solver.test_nets):
            net.close()
        if ranks.rank:
            return None
        coordinator = solver.strategy._rank.coordinator
        return {"weights": solver.net.params.data.copy(), "losses": watch.losses, "tests": watch.tests, "same": same,
                "steps": steps, "n_passes": n_passes,
                "value": coordinator.optimiser.value, "progress": coordinator.optimiser.progress,
                "counts": dict(coordinator.portions.pace.n_done), "pairs": len(coordinator.optimiser.pairs.kept),
                "again": coordinator.portions.n_again}


def meet(passes, ranks, layer):
    """In its first portion each replica waits for the others', so that none comes only when the work is done."""
    if layer == 1 and next(passes) == 0:
        ranks.barrier()


def die(passes, at, layer):
    """Before a forward pass of that number; those of test nets are counted from TESTS on."""
    if layer == 1 and next(passes) + 1 == at:
        os.kill(os.getpid(), signal.SIGKILL)


class Watch:
    """Keeps the losses, and each test's."""

    def __init__(self):
        self.losses, self.tests = [], {}

    def __getattr__(self, name):
        return lambda *_: None

    def kept(self, solver):
        return {}

    def gradients_ready(self, solver, loss, rate):
        self.losses.append(loss)

    def measured(self, solver, phase, values):
        if phase.startswith("test"):
            self.tests[solver.iteration] = values["loss"]


def main():
    communicator = Communicator.world()
    install_excepthook(communicator)
    log.silence(True)
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        doomed = dict(map(int, pair.split(":")) for pair in sys.argv[2].split(","))
        found = train(communicator, folder, "killed", doomed.get(communicator.rank, 0))
    else:
        found = {name: train(communicator, folder, name) for name, (flags, _) in RUNS.items()
                 if name != "killed" and communicator.n_ranks > flags.get("servers", 0)}
    if communicator.rank == 0:
        (folder / f"results_{communicator.n_ranks}").write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main()
