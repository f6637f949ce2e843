"""Ranks that train in limited memory and say what they had before the net, and at most while they trained.

    python -m tests.scaffe.training.peak_memory_worker LIMIT FOLDER STRATEGY SLACK
"""

import json
import re
import sys
from argparse import Namespace
from pathlib import Path

from google.protobuf import text_format

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from scaffe.training.limited_memory import LimitedMemory
from tests.scaffe.training.limited_memory_net import NET

SOLVER = 'base_lr: 0.001 momentum: 0.9 lr_policy: "fixed" max_iter: 5 random_seed: 5'


def resident(name):
    """VmRSS, now in memory, or VmHWM, at most since the last ``clear``, in bytes."""
    return int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10


def clear():
    """Begin to count VmHWM anew."""
    Path("/proc/self/clear_refs").write_text("5")


def solver_of(communicator, net, options):
    param = text_format.Parse(SOLVER, caffe_pb2.SolverParameter())
    text_format.Parse(net, param.net_param)
    return build_solver(communicator, param, Namespace(
        bucket="0", reduce="auto", allow_nan=True, threads=1, readers=1, stage="", level=0, scal="weak",
        placement="auto", skip_bad_records=0, wire="", gpu="", tf32="off", n_sync=0, n_fetch=1, n_push=1, warm_start=0,
        servers=0, **options))


def main():
    limit, folder, strategy, slack = sys.argv[1:]
    log.silence(True)
    communicator, options = Communicator.world(), {"spill": folder, "strategy": strategy, "slack": float(slack)}
    install_excepthook(communicator)
    for memory in ("", "99%"):  # kernels and libraries are there before the net, those of limited memory, too
        small = solver_of(communicator, NET, {**options, "memory": memory})
        small.solve()
        small.close()
        del small
    large = NET.replace("num_output: 20", "num_output: 60").replace(
        "dim: 4 dim: 3 dim: 16 dim: 16 } shape { dim: 4 }", "dim: 32 dim: 3 dim: 64 dim: 64 } shape { dim: 32 }")
    clear()
    before = resident("VmRSS")
    solver = solver_of(communicator, large, {**options, "memory": limit})
    tier = next(each.tier for each in solver.observers if isinstance(each, LimitedMemory))
    solver.solve()
    found = communicator.gather_objects({"before": before, "peak": resident("VmHWM"), "limit": tier.limit.n_bytes,
                                         "moved": tier.mover.offloaded})
    if found is not None:
        print(json.dumps(found))
    solver.close()


if __name__ == "__main__":
    main()
