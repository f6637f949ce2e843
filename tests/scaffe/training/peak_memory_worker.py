"""A process that trains in limited memory and says what it had before the net, and at most while it trained.

    python -m tests.scaffe.training.peak_memory_worker LIMIT FOLDER STRATEGY
"""

import json
import re
import sys
from argparse import Namespace
from pathlib import Path

from google.protobuf import text_format

from scaffe import log
from scaffe.collectives.communicator import Communicator
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


def solver_of(net, folder, strategy, memory):
    param = text_format.Parse(SOLVER, caffe_pb2.SolverParameter())
    text_format.Parse(net, param.net_param)
    return build_solver(Communicator.single(), param, Namespace(
        strategy=strategy, slack=0.0, servers=0, bucket="0", reduce="auto", allow_nan=True, threads=1, readers=1,
        stage="", level=0, scal="strong", spill=folder, placement="auto", memory=memory))


def main():
    limit, folder, strategy = sys.argv[1:]
    log.silence(True)
    small = solver_of(NET, folder, strategy, "")  # what kernels and libraries take is there before the net
    small.solve()
    small.close()
    del small
    large = NET.replace("num_output: 20", "num_output: 60").replace(
        "dim: 4 dim: 3 dim: 16 dim: 16 } shape { dim: 4 }", "dim: 32 dim: 3 dim: 64 dim: 64 } shape { dim: 32 }")
    clear()
    before = resident("VmRSS")
    solver = solver_of(large, folder, strategy, limit)
    tier = next(each.tier for each in solver.observers if isinstance(each, LimitedMemory))
    solver.solve()
    print(json.dumps({"before": before, "peak": resident("VmHWM"), "limit": tier.limit.n_bytes,
                      "moved": tier.mover.saved}))
    solver.close()


if __name__ == "__main__":
    main()
