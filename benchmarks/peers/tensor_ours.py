"""One rank of ours for ``benchmarks/tensor_parallel.py``: under mpirun, ``tensor_ours.py FILE.npz FOLDER``."""

import json
import sys
import time
from argparse import Namespace
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent.parent), str(Path(__file__).resolve().parent.parent)]

from partitions import message_of  # noqa: E402
from peers.ddp_ours import Loss  # noqa: E402

from scaffe import log  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.layers.base.context import Context  # noqa: E402
from scaffe.layers.base.layer import TRAIN  # noqa: E402
from scaffe.layers.base.random import Stream  # noqa: E402
from scaffe.nets.build import build_net  # noqa: E402
from scaffe.nets.devices import load_kernels  # noqa: E402
from scaffe.nets.net import Net  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.proto.text import parse_text  # noqa: E402
from scaffe.training.partition.division import Division  # noqa: E402
from scaffe.training.partition.options import LINK, RATE, plan_of, ranks_of  # noqa: E402
from scaffe.training.partition.planner.shapes import shapes_of  # noqa: E402
from scaffe.training.solver import Method, Solver  # noqa: E402
from scaffe.training.strategies import Role  # noqa: E402

SOLVER = 'base_lr: 0.01 momentum: 0.9 lr_policy: "fixed"'


def make_solver(files: dict[str, np.ndarray], communicator: Communicator) -> Solver:
    """A net that all ranks share, with this rank's frames and its part of the file's weights."""
    n_ranks, batch = communicator.n_ranks, len(files["label"]) // communicator.n_ranks
    message, context = message_of("speech", batch), Context(TRAIN, load_kernels(1), rng=Stream(1))
    sketch = build_net(message, Context(TRAIN, load_kernels(1), fills=False))
    known = ranks_of(Namespace(link_bandwidth=LINK, multiply_adds=RATE), n_ranks, batch, n_ranks)
    division = Division.of(communicator, plan_of(str(n_ranks), shapes_of(sketch), known))
    message, parts = division.shared(message)
    net = build_net(message, context, parts=parts)
    division.weigh_losses(net)
    load(net, files)
    mine = slice(communicator.rank * batch, (communicator.rank + 1) * batch)
    net.blobs["h0"].data, net.blobs["label"].data = files["data"][mine], files["label"][mine]
    role = Role.worker(communicator)
    role = Role(role.kind, role.replica, role.n_replicas, role.share, role.ranks, role.world, division)
    solver = Solver(parse_text(SOLVER, caffe_pb2.SolverParameter), net, [], communicator,
                    Method("sc-rs", "auto", options=Namespace(bucket="auto", wire="")), role=role)
    solver.observers = [Loss()]
    solver.strategy.begin()
    return solver


def load(net: Net, files: dict[str, np.ndarray]) -> None:
    """This rank's part of the weights."""
    for node in net.nodes:
        for i, (blob, name) in enumerate(zip(node.layer.blobs, ("weight", "bias"), strict=False)):
            portion, whole = net.parts.portion(node.name, i), files[f"{node.name}.{name}"]
            blob.data = whole if portion is None else portion.of(whole)


def main(path: str, folder: str) -> None:
    """Serve commands until the pipe closes."""
    communicator = Communicator.world()
    communicator.install_excepthook()
    log.silence(True)
    solver = make_solver(dict(np.load(path)), communicator)
    with Path(folder, f"commands.{communicator.rank}").open() as commands:
        for line in commands:
            communicator.barrier()
            start = time.perf_counter()
            solver.step(int(line.split()[1]))
            told = communicator.allgather_objects((time.perf_counter() - start, solver.observers[0].last))
            if communicator.rank == 0:
                print(json.dumps({"seconds": max(s for s, _ in told), "loss": sum(v for _, v in told) / len(told)}),
                      flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
