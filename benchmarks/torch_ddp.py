"""Images per second of PyTorch's DistributedDataParallel over gloo, over MPI and over our collectives.

    mpirun -np 2 PYTHON_WITH_TORCH benchmarks/torch_ddp.py [--rounds N] [--ways WAY,...] [--as-view] [NET ...]
    PYTHONPATH=. jobs/cluster.sh 4 1gbit -- PYTHON_WITH_TORCH benchmarks/torch_ddp.py

One thread a rank; images from a seeded generator, SGD without momentum. All ways train in the same processes and take
turns; first each must reach gloo's loss from the same weights. Ways: `gloo`; `mpi`, our hook with MPI_Allreduce on the
helper thread, as PyTorch's own MPI backend does it (no wheel has that backend); `hook` and `hook-bf16`, our hook beside
gloo; `backend`, init_process_group("scaffe"); `alone`, no exchange at all: as fast as any way could be. Medians of the
slowest rank's times; the last column has the CPU seconds of rank 0's threads.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")
if Path("/sys/class/net/eth0").exists():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from figures import Cell, Figures, Sample, add_flag  # noqa: E402
from nets.torch_wide import IMAGE, NETS  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import scaffe.torch  # noqa: E402

WAYS = ("gloo", "mpi", "hook", "hook-bf16", "backend", "alone")
HOOKS = {"mpi": {"algorithm": "mpi"}, "hook": {}, "hook-bf16": {"wire": "bf16"}}
CHECK_STEPS, TOLERANCE = 3, {"hook-bf16": 2e-2}


class Way:
    """One replica of a net, the way in which its gradients become one.

    Args:
        name: of the net.
        how: the way.
        gloo: process group.
        as_view: gradients lie in the buckets, with no copy there and back.
    """

    def __init__(self, name: str, how: str, gloo: dist.ProcessGroup, as_view: bool) -> None:
        make, self.n_images = NETS[name]
        torch.manual_seed(1)
        self.net = DistributedDataParallel(make(), process_group=None if how == "backend" else gloo,
                                           gradient_as_bucket_view=as_view)
        if how in HOOKS:
            self.net.register_comm_hook(None, scaffe.torch.ddp_hook(**HOOKS[how]))
        self.apart = self.net.no_sync if how == "alone" else nullcontext
        self.cpu_seconds: list[float] = []
        self.sgd = torch.optim.SGD(self.net.parameters(), 1e-3)
        generator = torch.Generator().manual_seed(2 + dist.get_rank())
        self.images = torch.randn(self.n_images, *IMAGE, generator=generator)
        self.labels = torch.randint(1000, (self.n_images,), generator=generator)

    def train(self, n_steps: int) -> tuple[float, float]:
        """Seconds of the slowest rank, and the ranks' mean loss of the last step."""
        dist.barrier()
        start, cpu_start = time.perf_counter(), time.process_time()
        for _ in range(n_steps):
            self.sgd.zero_grad()
            with self.apart():
                loss = nn.functional.cross_entropy(self.net(self.images), self.labels)
                loss.backward()
            self.sgd.step()
        seconds = torch.tensor(time.perf_counter() - start)
        self.cpu_seconds.append((time.process_time() - cpu_start) / n_steps)
        mean = loss.detach().clone()
        self.sgd.zero_grad()
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        return float(seconds), float(mean)


def race(name: str, ways: list[str], n_rounds: int, gloo: dist.ProcessGroup, as_view: bool) -> list[list[Cell]]:
    """One net's rows of the table."""
    sides = {how: Way(name, how, gloo, as_view) for how in ways}
    losses = {how: side.train(CHECK_STEPS)[1] for how, side in sides.items()}
    right = losses[ways[0]]
    for how, loss in losses.items():
        if how != "alone" and abs(loss - right) > TOLERANCE.get(how, 2e-3) * abs(right):
            raise SystemExit(f"{name}, {how}: after {CHECK_STEPS} steps the loss is {loss}, {ways[0]}'s {right}")
    seconds: dict[str, list[float]] = {how: [] for how in ways}
    for _ in range(n_rounds):
        for how, side in sides.items():
            seconds[how].append(side.train(1)[0])
    n_images = NETS[name][1] * dist.get_world_size()
    first = median(seconds[ways[0]])
    return [[f"{name}, {how}", Sample([n_images / taken for taken in times]), 1e3 * median(times),
             first / median(times), median(sides[how].cpu_seconds)] for how, times in seconds.items()]


def main() -> None:
    """Rank 0 prints a table of the nets asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET", help=f"of {', '.join(NETS)}; all if none is named")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ways", default=",".join(WAYS), help="the first is what the others are compared with")
    parser.add_argument("--as-view", action="store_true", help="DDP's gradient_as_bucket_view, for all ways")
    add_flag(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("scaffe")
    gloo = dist.new_group(backend="gloo")
    n_nodes = dist.group.WORLD.communicator.topology.n_nodes
    note = (f"{dist.get_world_size()} ranks of one thread on {n_nodes} node(s), medians of {args.rounds} steps, "
            "slowest rank.")
    columns = ("net, way", "images/s", "ms a step", f"x {args.ways.split(',')[0]}", "processor s")
    versions, variant = {"PyTorch": torch.__version__}, f"{dist.get_world_size()}-{n_nodes}"
    is_root = dist.get_rank() == 0
    with Figures("torch-ddp", columns, note, args.keep, versions, variant) if is_root else nullcontext() as table:
        for name in args.nets or NETS:
            for row in race(name, args.ways.split(","), args.rounds, gloo, args.as_view):
                if table is not None:
                    table.add(*row)


if __name__ == "__main__":
    main()
