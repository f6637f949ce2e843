"""One rank of the test of strategies with a parameter server: trains a net many ways; rank 0 writes what came out.

    mpirun -np N python -m tests.scaffe.training.parameter_server.worker FOLDER
"""

import hashlib
import pickle
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
from google.protobuf import text_format

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook
from scaffe.files import read_state
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from scaffe.training.checkpoint import restore_checkpoint, save_checkpoint
from scaffe.training.strategies import WORKER, look_up
from tests.scaffe.training.strategies_worker import NET, SOLVER

PLAIN = "clip_gradients: -1 max_iter: 12 "
CLIPPED = "clip_gradients: 0.5 max_iter: 12 "  # below every iteration's norm
ADAM = PLAIN + 'type: "Adam" base_lr: 0.01 '
ADAGRAD = PLAIN + 'momentum: 0 type: "AdaGrad" '
RUNS = {  # strategy, its flags, the solver's fields
    "sc-b": ("sc-b", {}, PLAIN), "sc-b adam": ("sc-b", {}, ADAM), "sc-b adagrad": ("sc-b", {}, ADAGRAD),
    "bsp": ("ssp", {}, PLAIN), "bsp adam": ("ssp", {}, ADAM), "bsp adagrad": ("ssp", {}, ADAGRAD),
    "bsp in buckets": ("ssp", {"bucket": "600"}, PLAIN), "bsp clipped": ("ssp", {}, CLIPPED),
    "sc-b clipped": ("sc-b", {}, CLIPPED),
    "ssp 1": ("ssp", {"slack": 1.0}, PLAIN), "ssp inf": ("ssp", {"slack": float("inf")}, PLAIN),
    "ssp adagrad": ("ssp", {"slack": 2.0}, ADAGRAD),
    "downpour": ("downpour", {}, PLAIN), "downpour weak": ("downpour", {"scal": "weak", "n_sync": 3}, PLAIN),
    "downpour warm": ("downpour", {"n_fetch": 2, "n_push": 3, "warm_start": 5}, ADAGRAD),
}
SUMS = 'clip_gradients: -1 max_iter: 7 momentum: 0 weight_decay: 0 lr_policy: "fixed" '
RUNS |= {f"sum of {name}": (*run, SUMS) for name, run in {
    "bsp": ("ssp", {}), "ssp 1": ("ssp", {"slack": 1.0}), "ssp inf": ("ssp", {"slack": float("inf")}),
    "downpour": ("downpour", {"n_fetch": 2, "n_push": 3}), "downpour 1": ("downpour", {}),
    "downpour warm": ("downpour", {"n_sync": 2, "warm_start": 3})}.items()}
SERVERS = {f"{name} with a server": (strategy, flags | {"servers": 1}, rule)
           for name, (strategy, flags, rule) in RUNS.items()
           if name in ("bsp adam", "ssp 1", "downpour warm", "sum of downpour")}


def options_of(strategy, flags):
    return Namespace(**{"strategy": strategy, "reduce": "M", "wire": "", "bucket": "0", "scal": "strong", "threads": 1,
                        "readers": 1, "level": 0, "stage": "", "gpu": "", "allow_nan": False, "skip_bad_records": 0,
                        "slack": 0.0, "servers": 0, "n_fetch": 1, "n_push": 1, "n_sync": 0, "warm_start": 0} | flags)


def train(communicator, strategy, flags, rule, state=None, snapshot=""):
    """Train one way; go on from ``state`` if given, leave a state of prefix ``snapshot`` at the end.

    Returns:
        on rank 0 what came out: weights, histories, whether all workers ended with the same weights.
    """
    param = text_format.Merge(rule, text_format.Parse(SOLVER, caffe_pb2.SolverParameter()))
    text_format.Parse(NET, param.net_param)
    param.snapshot_prefix = snapshot or "none"
    options = options_of(strategy, flags)
    kind = look_up(strategy, "M", communicator)
    role = kind.roles.place(communicator, options)
    if role.kind != WORKER:
        kind.roles.serve(role, param, options)
        return None
    with role.ending_all():
        solver = build_solver(role.ranks, param, options, role)
        if state:
            restore_checkpoint(solver, state)
        watch = Watch()
        solver.observers.append(watch)
        finish, found = solver.strategy.finish, {}

        def last():  # while the server is still there
            found["histories"] = np.concatenate([*solver.strategy.state.histories(), []])
            if snapshot:
                save_checkpoint(solver)
                found["last step"] = solver.net.params.diff.copy()
            finish()

        solver.strategy.finish = last
        solver.solve()
        hashes = role.ranks.allgather_objects(hashlib.sha256(solver.net.params.data.tobytes()).hexdigest())
        figures = role.ranks.allgather_objects(getattr(solver.strategy, "statistics", None))
        steps = role.ranks.gather_objects(watch.steps)
        rates = np.zeros(solver.net.params.n_elems)
        for p, place in zip(solver.net.params.params, solver.net.params.slices, strict=True):
            rates[place] = param.base_lr * p.lr_mult
        return {**found, "weights": solver.net.params.data.copy(), "same": len(set(hashes)) == 1, "first": watch.first,
                "losses": watch.losses, "steps": steps, "rates": rates, "figures": figures,
                "n_bytes": role.ranks.allgather_objects(sum(shard.n_bytes for shard in solver.updater.shards))}


class Watch:
    """Keeps the losses, the weights of the start, and the mean gradients of each iteration."""

    def __init__(self):
        self.losses, self.first, self.steps = [], None, []

    def __getattr__(self, name):
        return lambda *_: None

    def kept(self, solver):
        return {}

    def before_iteration(self, solver):
        if self.first is None:
            self.first = solver.net.params.data.copy()

    def gradients_ready(self, solver, loss, rate):
        self.losses.append(float(loss))
        if loss:  # else it was not this worker's turn
            solver.net.params.write_all_cleared_diffs()
            self.steps.append(solver.net.params.diff / np.float64(solver.param.iter_size))


def resumed(communicator, folder):
    """BSP for 6 + 6 iterations, and from a state of sc-b's, and back; with another number of servers, too."""
    found, first = {}, "max_iter: 6 " + 'type: "Adam" base_lr: 0.01 clip_gradients: -1 snapshot_diff: true '
    for name, (strategy, flags) in {"bsp": ("ssp", {}), "sc-b": ("sc-b", {}),
                                    "async": ("ssp", {"slack": 3.0, "servers": 1})}.items():
        prefix = f"{folder}/{name}_{communicator.n_ranks}"
        found[f"{name} saved"] = train(communicator, strategy, flags, first, snapshot=prefix)
        communicator.barrier()
        state = f"{prefix}_iter_6.solverstate"
        found[f"{name} file"] = np.concatenate([h.reshape(-1) for h in read_state(state).history])
        for more, (then, its) in {"bsp": ("ssp", {}), "sc-b": ("sc-b", {}), "servers": ("ssp", {"servers": 1})}.items():
            found[f"{name}, then {more}"] = train(communicator, then, its, ADAM, state)
            communicator.barrier()
    return found


def main():
    communicator = Communicator.world()
    install_excepthook(communicator)
    log.silence(communicator.rank > 0)
    folder = Path(sys.argv[1])
    results = {name: train(communicator, *run) for name, run in {**RUNS, **SERVERS}.items()}
    results |= resumed(communicator, folder)
    if communicator.rank == 0:
        (folder / f"results_{communicator.n_ranks}").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main()
