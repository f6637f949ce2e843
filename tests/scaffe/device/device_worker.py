"""One rank of the strategies' test on a device: the same trainings on the CPU and on the device; rank 0 prints both.

With `masks` also one with masks on the device, gone through and resumed from its snapshot, and fp16's factors.

    mpirun -np N python tests/scaffe/device/device_worker.py PART...

CuPy is the pretend one, working as late as CUDA's rules allow where SCAFFE_CUDA_IPC is 0; with SCAFFE_TEST_GPU the
card's.
"""

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from argparse import Namespace

import numpy as np
from google.protobuf import text_format

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook
from scaffe.nets.net_layer import LossShare
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from scaffe.training.loss_scale import LossScale
from scaffe.training.strategies import look_up
from tests import pretend
from tests.pretend import nccl
from tests.scaffe import masked
from tests.scaffe.training.strategies_worker import NET, SOLVER

REAL = bool(os.environ.get("SCAFFE_TEST_GPU"))
WITHOUT_DRAWS = "\n".join(line for line in NET.splitlines() if '"drop"' not in line)  # a device draws its own numbers
ITERATIONS = 4
ADAM, ADAGRAD, PLAIN = 'type: "Adam" momentum2: 0.99', 'type: "AdaGrad" momentum: 0', "clip_gradients: -1"
PARTS = {  # downpour with one replica all the time: bits
    "each": [("sc-b", "auto", "auto", ""), ("sc-ob", "auto", "0", ""), ("sc-obr", "auto", "500", ADAM),
             ("sc-rs", "auto", "500", ""), ("ssp", "auto", "0", ""), ("downpour", "auto", "0", ADAGRAD)],
    "more": [("sc-obr", "auto", "500", ""), ("sc-obr", "CB-2", "0", ""), ("sc-obr", "auto", "500", ADAGRAD),
             ("ssp", "auto", "500", ADAM), ("ssp", "auto", "0", PLAIN), ("downpour", "auto", "500", PLAIN)],
    "nccl": [("sc-b", "nccl", "auto", ""), ("sc-ob", "nccl", "0", ""), ("sc-obr", "nccl", "500", ADAM),
             ("sc-rs", "nccl", "500", "")],
}
"""Runs: strategy, algorithm, bucket, what is merged into the solver."""


def train(strategy: str, reduce: str, bucket: str, gpu: str, rule: str = "") -> dict[str, object]:
    """What rank 0's snapshot would hold, and whether all ranks have the same weights."""
    param = text_format.Merge(rule, text_format.Parse(SOLVER, caffe_pb2.SolverParameter()))
    param.max_iter = ITERATIONS
    text_format.Parse(WITHOUT_DRAWS, param.net_param)
    options = Namespace(strategy=strategy, reduce=reduce, wire="", bucket=bucket, scal="strong", threads=1, readers=1,
                        level=0, stage="", gpu=gpu, tf32="off", allow_nan=False, skip_bad_records=0, slack=0.0,
                        servers=0, n_fetch=1, n_push=1, n_sync=0, warm_start=ITERATIONS)
    communicator = Communicator.world()
    role = look_up(strategy, reduce, communicator).roles.place(communicator, options)
    solver = build_solver(communicator, param, options, role)
    finish, histories = solver.strategy.finish, []

    def last() -> None:  # while a server is still there
        histories.extend(solver.strategy.state.histories())  # rank 0 has them
        finish()

    solver.strategy.finish = last
    solver.solve()
    to_host = solver.net.context.kernels.to_host
    weights = np.array(to_host(solver.net.params.data))
    hashes = communicator.allgather_objects(hashlib.sha256(weights.tobytes()).hexdigest())
    return {"same": len(set(hashes)) == 1, "weights": weights.tolist(),
            "histories": np.concatenate([*histories, []]).tolist()}


def resumes(communicator: Communicator, folder: str) -> bool:
    """Whether all ranks of a run with masks end with the same bits when they go on from its snapshot."""
    through = masked.build(folder, "all")
    path = masked.saved(through)
    masked.train_on(through)
    again = masked.went_on(masked.build(folder, "all"), path)
    same = [a.tobytes() == b.tobytes() for a, b in zip(masked.state(through), again, strict=True)]
    return all(communicator.allgather_objects(all(same)))


def factors(communicator: Communicator, folder: str, strategy: str) -> dict[str, object]:
    """fp16, where one rank's gradients overflow until the loss's factor has been halved: all ranks' factors, whether
    they have the same weights, and how many calls they have made in their updates: none, since a lost rank may leave
    them to some (see recovery_state_machine)."""
    solver = masked.build(folder, "all", precision="fp16", strategy=strategy)
    apply, calls, n_calls = solver.strategy.apply, solver.communicator._ranks.calls, []

    def counted(rate: float, iteration: int) -> None:
        before = calls._n_calls
        apply(rate, iteration)
        n_calls.append(calls._n_calls - before)

    solver.strategy.apply = counted
    solver.net.nodes[-1].share = LossShare(gradient=1.0 if communicator.rank == 0 else 2.0**12)
    masked.saved(solver)
    weights = masked.state(solver)[0].tobytes()
    scale = next(each for each in solver.observers if isinstance(each, LossScale))
    kept = communicator.allgather_objects((scale.kept(solver), hashlib.sha256(weights).hexdigest()))
    return {"factors": [each["loss_scale"] for each, _ in kept], "same": len({digest for _, digest in kept}) == 1,
            "calls": sum(n_calls), "updates": len(n_calls)}


def main() -> None:
    """Train in every way, on both."""
    communicator = Communicator.world()
    install_excepthook(communicator)
    log.silence(True)
    late = pretend.deferring if not REAL and os.environ.get("SCAFFE_CUDA_IPC") == "0" else contextlib.nullcontext
    rows = []
    for run in (run for part in sys.argv[1:] for run in PARTS.get(part, ())):
        strategy, reduce, bucket, rule = run
        expected = train(strategy, reduce.replace("nccl", "auto"), bucket, "", rule)
        with late():
            rows.append({"run": run, "cpu": expected, "device": train(strategy, reduce, bucket, "all", rule)})
    same, found = list[bool](), list[dict[str, object]]()
    if "masks" in sys.argv:
        with tempfile.TemporaryDirectory() as folder, late():
            folder = communicator.bcast_object(folder)
            same = [resumes(communicator, folder)]
            found = [factors(communicator, folder, strategy) for strategy in ("sc-b", "sc-obr", "sc-rs")]
    if communicator.rank == 0:
        json.dump({"rows": rows, "resumes": same, "fp16": found}, sys.stdout)


if __name__ == "__main__":
    if not REAL:
        sys.modules.update(pretend.make())
        nccl.install()
        pretend.device.Settings.n_devices = 2 if "nccl" in sys.argv else 1  # NCCL wants one for each rank
        pretend.pool.Settings.shared = os.environ.get("SCAFFE_CUDA_IPC") != "0"
    main()
