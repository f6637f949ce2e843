"""One rank of ours for ``benchmarks/ddp.py``: under mpirun, ``ddp_ours.py NET FILE.npz FOLDER``."""

import json
import sys
import time
from argparse import Namespace
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent.parent), str(Path(__file__).resolve().parent.parent)]

from nets.architectures import BATCHES  # noqa: E402
from nets.prototxt import prototxt  # noqa: E402

from scaffe import log  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.layers.base.context import Context  # noqa: E402
from scaffe.layers.base.layer import TRAIN  # noqa: E402
from scaffe.layers.base.random import Stream  # noqa: E402
from scaffe.nets import graph  # noqa: E402
from scaffe.nets.build import build_net  # noqa: E402
from scaffe.nets.devices import load_kernels  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.proto.text import parse_text  # noqa: E402
from scaffe.training.solver import Method, Observer, Solver  # noqa: E402

SOLVER = 'base_lr: 1e-4 momentum: 0.9 weight_decay: 5e-4 lr_policy: "fixed"'


class Loss(Observer):
    """Keeps the last iteration's loss."""

    last = 0.0

    def gradients_ready(self, solver: Solver, loss: float, rate: float) -> None:
        """See Observer."""
        self.last = loss


def make_solver(name: str, how: str, files: dict[str, np.ndarray], communicator: Communicator, drops: bool) -> Solver:
    """A solver on this rank's share of the batch, from the weights of the file, with or without dropout."""
    strategy, reduce, *bucket = how.split(":")
    batch = BATCHES[name] // communicator.n_ranks
    message = parse_text(prototxt(name, batch), caffe_pb2.NetParameter)
    layers = [layer for layer in message.layer if drops or layer.type != "Dropout"]
    del message.layer[:]
    message.layer.extend(layers)
    net = build_net(graph.prepare(message, TRAIN), Context(TRAIN, load_kernels(1), rng=Stream(1)))
    for node in net.nodes:
        for blob, part in zip(node.layer.blobs, ("weight", "bias"), strict=False):
            blob.data = files[f"{node.name}.{part}"]
    mine = slice(communicator.rank * batch, (communicator.rank + 1) * batch)
    for top in ("data", "label"):
        net.blobs[top].data = files[top][mine]
    options = Namespace(bucket=bucket[0] if bucket else "auto")
    solver = Solver(parse_text(SOLVER, caffe_pb2.SolverParameter), net, [], communicator,
                    Method(strategy, reduce, options=options))
    solver.observers = [Loss()]
    solver.strategy.begin()
    return solver


def main(name: str, path: str, folder: str) -> None:
    """Serve commands until the pipe closes."""
    communicator = Communicator.world()
    communicator.install_excepthook()
    log.silence(True)
    files = dict(np.load(path))
    solvers: dict[str, Solver] = {}
    with Path(folder, f"commands.{communicator.rank}").open() as commands:
        for line in commands:
            how, n_steps, *check = line.split()
            if check or how not in solvers:
                solvers[how] = make_solver(name, how, files, communicator, drops=not check)
            solver = solvers.pop(how) if check else solvers[how]
            communicator.barrier()
            start = time.perf_counter()
            solver.step(int(n_steps))
            solver.strategy.synchronize_parameters()
            seconds = time.perf_counter() - start
            told = communicator.allgather_objects((seconds, solver.observers[0].last))
            if communicator.rank == 0:
                print(json.dumps({"seconds": max(s for s, _ in told), "loss": sum(v for _, v in told) / len(told)}),
                      flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
