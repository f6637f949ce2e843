"""One rank of the test of limited memory on several: the same net under each strategy, without a limit and within one.

    mpirun -np N python -m tests.scaffe.training.limited_memory_worker FOLDER
"""

import hashlib
import json
import sys
from argparse import Namespace
from pathlib import Path

from google.protobuf import text_format

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook
from scaffe.nets.memory import parts, state
from scaffe.nets.memory.needs import least_bytes
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from scaffe.training.limited_memory import LimitedMemory
from tests.scaffe.training.limited_memory_net import NET

RUNS = (("sc-b", "C", 0), ("sc-ob", "C", 500), ("sc-obr", "C", 500), ("sc-rs", "R", 600))
SOLVER = 'base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 4 iter_size: 2 random_seed: 5 snapshot_prefix: "x"'


def build(communicator, folder, run, **options):
    """A solver, and the tier that its net has, if it has one."""
    strategy, algorithm, bucket = run
    param = text_format.Parse(SOLVER, caffe_pb2.SolverParameter())
    text_format.Parse(NET, param.net_param)
    solver = build_solver(communicator, param, Namespace(
        strategy=strategy, reduce=algorithm, wire="", bucket=str(bucket), scal="strong", threads=1, readers=1, level=0,
        stage="", gpu="", allow_nan=False, skip_bad_records=0, spill=str(folder), placement="auto", **options))
    return solver, next((each.tier for each in solver.observers if isinstance(each, LimitedMemory)), None)


def least(communicator, folder, run):
    """The least bytes that this rank trains in: ranks hold different parts of the histories."""
    solver, found = build(communicator, folder, run, memory="99%")
    solver.close()
    return str(found.limit.fixed + least_bytes(found.iteration))


def trained(communicator, folder, run, **options):
    """Train. Returns the digest of weights and histories, and the tier."""
    solver, found = build(communicator, folder, run, **options)
    solver.solve()
    digest = hashlib.sha256(solver.strategy.parameters().tobytes())
    for history in solver.strategy.histories():
        digest.update(history.tobytes())
    solver.close()
    return digest.hexdigest(), found


def main():
    parts.LEAST_BYTES, state.LEAST_BYTES = 1, 5000
    communicator, folder = Communicator.world(), Path(sys.argv[1])
    install_excepthook(communicator)
    log.silence(True)
    results = {}
    for run in RUNS:
        expected, _ = trained(communicator, folder, run)
        limited, found = trained(communicator, folder, run, memory=least(communicator, folder, run))
        same = communicator.allgather_objects(limited == expected and bool(found.mover.saved))
        results[run[0]] = same
    if communicator.rank == 0:
        (folder / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
