"""The benchmarks' nets, shared by ranks: one rank's losses, weights and histories after 20 iterations.

    python -m tests.scaffe.training.partition.benchmark_nets [--ranks 2,3,8] [--link BYTES/S] [NET ...]

For each net and number of ranks one MPI job: its ranks share the net as the planner finds best, an image each; then the
first of them trains the whole net on all images. Prints the largest differences, and ends with 1 if one is too large.
`make test-partitions`; too long for `make test`.
"""

import argparse
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[4]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from nets.architectures import ARCHITECTURES  # noqa: E402
from nets.prototxt import prototxt  # noqa: E402
from partitions import NETS  # noqa: E402

from scaffe import log  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.layers.base.layer import TRAIN, Context  # noqa: E402
from scaffe.layers.base.random import Stream  # noqa: E402
from scaffe.nets import graph  # noqa: E402
from scaffe.nets.build import build_net  # noqa: E402
from scaffe.nets.devices import load_kernels  # noqa: E402
from scaffe.nets.weights import stored_layers  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.proto.text import parse_text  # noqa: E402
from scaffe.training.checkpoint import whole_histories  # noqa: E402
from scaffe.training.partition.division import Division  # noqa: E402
from scaffe.training.partition.options import plan_of, ranks_of  # noqa: E402
from scaffe.training.partition.planner.shapes import shapes_of  # noqa: E402
from scaffe.training.solver import Method, Observer, Solver  # noqa: E402
from scaffe.training.strategies import Role  # noqa: E402
from tests.mpirun import mpirun  # noqa: E402

SOLVER = 'base_lr: 1e-5 momentum: 0.9 weight_decay: 5e-4 lr_policy: "fixed"'
N_ITERATIONS, CLOSE, N_CLASSES = 20, 1e-5, 10
ALL = (*ARCHITECTURES, *NETS)


class Losses(Observer):
    """Keeps every iteration's loss."""

    def __init__(self):
        self.all = []

    def gradients_ready(self, solver, loss, rate):
        """See Observer."""
        self.all.append(loss)


def message_of(name, n_images):
    """The prepared net."""
    text = NETS[name](n_images) if name in NETS else prototxt(name, n_images)
    return graph.prepare(parse_text(text, caffe_pb2.NetParameter), TRAIN)


def made(name, ranks, n_images, link):
    """A solver of the net, shared by all ranks if there are several."""
    message, parts, role = message_of(name, n_images), None, Role.worker(ranks)
    if ranks.n_ranks > 1:
        sketch = build_net(message, Context(TRAIN, load_kernels(1), fills=False))
        known = ranks_of(Namespace(link_bandwidth=link, multiply_adds=5e10), ranks.n_ranks, n_images, 1)
        division = Division.of(ranks, plan_of(str(ranks.n_ranks), shapes_of(sketch), known))
        message, parts = division.shared(message)
        role = Role(role.kind, role.replica, role.n_replicas, role.share, role.ranks, role.world, division)
    net = build_net(message, Context(TRAIN, load_kernels(1), rng=Stream(7)), parts=parts)
    if parts is not None:
        division.weigh_losses(net)
    return Solver(parse_text(SOLVER, caffe_pb2.SolverParameter), net, [], ranks,
                  Method("sc-rs", "auto", options=Namespace(bucket="auto", wire="")), role=role)


def trained(solver, first, n_all):
    """Train. Returns the losses, then weights and histories of the whole net, on the first rank."""
    data, label = solver.net.nodes[0].tops[:2]
    rng, n_images = np.random.default_rng(5), data.shape[0]
    images, labels = rng.standard_normal((n_all, *data.shape[1:])), rng.integers(0, N_CLASSES, n_all)
    data.data, label.data = images[first:first + n_images], labels[first:first + n_images]
    losses = Losses()
    solver.observers = [losses]
    solver.strategy.begin()
    solver.step(N_ITERATIONS)
    solver.strategy.settle()
    weights = [np.array(blob) for layer in stored_layers(solver.net) for blob in layer.blobs]
    histories = [np.array(array) for array in whole_histories(solver, solver.strategy.histories())]
    return losses.all, weights, histories


def compared(name, link):
    """One MPI job: print the differences. Returns whether they are small."""
    world = Communicator.world()
    world.install_excepthook()
    log.silence(True)
    solver = made(name, world, 1, link)
    split = sum(solver.net.parts.portion(node.name, i) is not None for node in solver.net.nodes
                for i in range(len(node.layer.blobs)))
    losses, weights, histories = trained(solver, world.rank, world.n_ranks)
    losses = np.mean(world.allgather_objects(losses), axis=0)
    alone = world.split(0 if world.rank == 0 else None, 0)
    if alone is None:
        return True
    wanted = trained(made(name, alone, world.n_ranks, link), 0, world.n_ranks)
    worst = [max(((np.abs(np.asarray(mine) - other) / (1 + np.abs(other))).max()
                  for mine, other in zip(found, of_one, strict=True) if other.size), default=0.0)
             for found, of_one in zip(([losses], weights, histories), ([np.array(wanted[0])], *wanted[1:]),
                                      strict=True)]
    print(f"{name:14s} {world.n_ranks:5d} {split:6d} " + " ".join(f"{number:10.1e}" for number in worst), flush=True)
    return max(worst[:2]) <= CLOSE


def main():
    """All nets and numbers of ranks, one job after the other; or one rank of a job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET")
    parser.add_argument("--ranks", default="2,3,8")
    parser.add_argument("--link", type=float, default=0.1195e9, help="bytes/s, for the planner")
    parser.add_argument("--job", action="store_true", help="this is a rank")
    args = parser.parse_args()
    if args.job:
        raise SystemExit(0 if compared(args.nets[0], args.link) else 1)
    print(f"net            ranks  split     losses    weights  histories   (largest |difference| / (1 + |value|) "
          f"after {N_ITERATIONS} iterations)", flush=True)
    jobs = [(name, int(n_ranks)) for name in args.nets or ALL for n_ranks in args.ranks.split(",")]
    ended = [subprocess.run([*mpirun(n_ranks), sys.executable, "-m", "tests.scaffe.training.partition.benchmark_nets",
                             "--job", "--link", str(args.link), name], cwd=ROOT).returncode for name, n_ranks in jobs]
    raise SystemExit(int(any(ended)))


if __name__ == "__main__":
    main()
