"""The benchmarks' nets, shared by ranks: one rank's losses, weights and histories after 20 iterations.

    python -m tests.scaffe.training.partition.benchmark_nets [--ranks 2,3,8] [--link BYTES/S] [NET ...]

For each net and number of ranks one MPI job: its ranks share the net as the planner finds best, an image each, once in
float32 and once in float64; then one rank trains the whole net on all images, in float32 and in float64. What is
compared is how each blob of weights has *changed* since the start: the norm of the difference of two changes, over that
of the change; of histories likewise; of losses |difference| / max(1, |loss|). The worst blob counts.

Columns: many ranks against one in float32; one rank's float32 against its float64, which is what rounding gives
whatever the order of sums (an input of a ReLU or a MAX pooling near a tie decides otherwise, and gradients jump); many
ranks against one in float64, where nothing is near a tie. Ends with 1 where float64 differs by more than 1e-5, or
float32 by more than 1e-5 and than four times what rounding gives one rank. Images are smaller than the nets' own, for
time's sake. `channels` and `bands` are kinds_net.py's, pinned to these; for up to 7 ranks. `make test-partitions`; too
long for `make test`.
"""

import argparse
import pickle
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from functools import partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[4]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from nets.architectures import ARCHITECTURES  # noqa: E402
from nets.prototxt import prototxt  # noqa: E402
from partitions import NETS as SHARED  # noqa: E402

from scaffe import log  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.layers.base.context import Context  # noqa: E402
from scaffe.layers.base.layer import TRAIN  # noqa: E402
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
from tests.scaffe.training.partition.kinds_net import kinds_net  # noqa: E402

SOLVER = 'base_lr: {rate} momentum: 0.9 weight_decay: 5e-4 lr_policy: "fixed"'
N_ITERATIONS, CLOSE, ROUNDING, N_CLASSES, TINY = 20, 1e-5, 4, 10, np.finfo(float).tiny
KINDS = {cut.lower(): partial(kinds_net, cut) for cut in ("CHANNELS", "BANDS")}
NETS = SHARED | KINDS
ALL = (*ARCHITECTURES, *NETS)
RATES = dict.fromkeys(ALL, 1e-3) | dict.fromkeys(("resnet50", "mobilenet"), 1e-5)
"""Learning rates; where statistics of few images normalise, larger ones let rounding grow without limit."""
SMALLER = {"caffenet": ("227", "115", ""), "googlenet": ("224", "112", "3"), "resnet50": ("224", "112", "4"),
           "mobilenet": ("224", "112", "4"), "vgg16": ("224", "64", "")}
"""Net → height of its images, the height here, and what is left of its last pooling's 7 x 7."""


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
    if name in SMALLER:
        old, new, pooled = SMALLER[name]
        text = text.replace(f"dim: {old} dim: {old}", f"dim: {new} dim: {new}")
        text = text.replace("pool: AVE kernel_size: 7", f"pool: AVE kernel_size: {pooled}")
    return graph.prepare(parse_text(text, caffe_pb2.NetParameter), TRAIN)


def made(name, ranks, n_images, link, dtype):
    """A solver of the net, shared by all ranks if there are several; with float32's weights whatever the type."""
    message, parts, role = message_of(name, n_images), None, Role.worker(ranks)
    if ranks.n_ranks > 1:
        sketch = build_net(message, Context(TRAIN, load_kernels(1), fills=False))
        known = ranks_of(Namespace(link_bandwidth=link, multiply_adds=5e10), ranks.n_ranks, n_images, 1)
        division = Division.of(ranks, plan_of(str(ranks.n_ranks), shapes_of(sketch), known))
        message, parts = division.shared(message)
        role = Role(role.kind, role.replica, role.n_replicas, role.share, role.ranks, role.world, division)
    filled, net = (build_net(message, Context(TRAIN, load_kernels(1), np.dtype(kind), rng=Stream(7)), parts=parts)
                   for kind in (np.float32, dtype))
    for node, other in zip(net.nodes, filled.nodes, strict=True):
        for blob, start in zip(node.layer.blobs, other.layer.blobs, strict=True):
            blob.data = start.data
    if parts is not None:
        division.weigh_losses(net)
    return Solver(parse_text(SOLVER.format(rate=RATES[name]), caffe_pb2.SolverParameter), net, [], ranks,
                  Method("sc-rs", "auto", options=Namespace(bucket="auto", wire="")), role=role)


def weights_of(solver):
    """Of the whole net, on the first rank."""
    return [np.array(blob, np.float64) for layer in stored_layers(solver.net) for blob in layer.blobs]


def trained(name, ranks, n_images, link, dtype):
    """Train a net; each rank some of all images. What it gave, on the first rank."""
    solver, n_all = made(name, ranks, n_images, link, dtype), n_images * ranks.n_ranks
    data, label = solver.net.nodes[0].tops[:2]
    rng, mine = np.random.default_rng(5), slice(ranks.rank * n_images, (ranks.rank + 1) * n_images)
    images, labels = rng.standard_normal((n_all, *data.shape[1:]), np.float32), rng.integers(0, N_CLASSES, n_all)
    data.data, label.data = images[mine], labels[mine]
    losses, starts = Losses(), weights_of(solver)
    solver.observers = [losses]
    solver.strategy.begin()
    solver.step(N_ITERATIONS)
    solver.strategy.synchronize_parameters()
    changes = [end - start for start, end in zip(starts, weights_of(solver), strict=True)]
    histories = [np.array(array, np.float64) for array in whole_histories(solver, solver.strategy.state.histories())]
    return np.mean(ranks.allgather_objects(losses.all), axis=0), changes, histories


def largest(found, wanted):
    """Of losses, changes and histories: the largest difference."""
    (losses, *arrays), (right, *others) = found, wanted
    return [float((np.abs(losses - right) / np.maximum(1, np.abs(right))).max()),
            *(max((float(np.linalg.norm((one - other).ravel()) / max(np.linalg.norm(other.ravel()), TINY))
                   for one, other in zip(mine, whole, strict=True) if other.size), default=0.0)
              for mine, whole in zip(arrays, others, strict=True))]


def compared(name, link, folder):
    """One MPI job: print the differences. Returns whether they are small."""
    world = Communicator.world()
    world.install_excepthook()
    log.silence(True)
    started = time.perf_counter()
    many, many64 = (trained(name, world, 1, link, dtype) for dtype in (np.float32, np.float64))
    pair = world.split(0 if world.rank < 2 else None, world.rank)
    if pair is None:
        return True
    alone, path = pair.split(pair.rank, 0), Path(folder, "float64.pickle")
    one = trained(name, alone, world.n_ranks, link, (np.float32, np.float64)[pair.rank])
    if pair.rank == 1:
        path.write_bytes(pickle.dumps(one))
    pair.barrier()
    if pair.rank == 1:
        return True
    one64 = pickle.loads(path.read_bytes())
    found, rounding, found64 = largest(many, one), largest(one, one64), largest(many64, one64)
    columns = "  ".join(" ".join(f"{number:8.1e}" for number in numbers) for numbers in (found, rounding, found64))
    print(f"{name:14s} {world.n_ranks:5d}  {columns}  {time.perf_counter() - started:5.0f} s", flush=True)
    return max(found64) <= CLOSE and all(mine <= max(CLOSE, ROUNDING * least)
                                         for mine, least in zip(found, rounding, strict=True))


def main():
    """All nets and numbers of ranks, one job after the other; or one rank of a job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET")
    parser.add_argument("--ranks", default="2,3,8")
    parser.add_argument("--link", type=float, default=0.1195e9, help="bytes/s, for the planner")
    parser.add_argument("--job", default="", metavar="FOLDER", help="this is a rank, which writes here")
    args = parser.parse_args()
    if args.job:
        raise SystemExit(0 if compared(args.nets[0], args.link, args.job) else 1)
    print(f"{'':21}{'many ranks and one':27} {'one, float32 and float64':27} many ranks and one, float64\n"
          f"net            ranks  {'  '.join(['  losses  changes histories'] * 3)}", flush=True)
    jobs, ended = [(name, int(n_ranks)) for name in args.nets or ALL for n_ranks in args.ranks.split(",")
            if name not in KINDS or int(n_ranks) <= 7], []
    for name, n_ranks in jobs:
        with tempfile.TemporaryDirectory() as folder:
            ended.append(subprocess.run([*mpirun(n_ranks), sys.executable, "-m", __spec__.name, "--job", folder,
                                         "--link", str(args.link), name], cwd=ROOT).returncode)
    raise SystemExit(int(any(ended)))


if __name__ == "__main__":
    main()
