"""PyTorch's ranks for ``benchmarks/asynchronous.py``: ``late_torch.py BASE_SECONDS N_ITERATIONS N_RANKS``.

DistributedDataParallel over gloo on the net of ``late_ours.py``; the same sleeps.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from lateness import KINDS, seconds  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

N_WARM, BATCH = 10, 16


def work(rank, base, n_iterations, n_ranks):
    """One rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=n_ranks)
    for kind in KINDS:
        rate = measure(rank, kind, base, n_iterations, n_ranks)
        if rank == 0:
            print(json.dumps(["DDP", kind, rate]), flush=True)
    dist.destroy_process_group()


def measure(rank, kind, base, n_iterations, n_ranks):
    """Train under one lateness. Returns the ranks' images per second, summed."""
    net = DistributedDataParallel(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)))
    sgd, loss = torch.optim.SGD(net.parameters(), lr=0.01), nn.CrossEntropyLoss()
    x, y = torch.randn(BATCH, 256), torch.ones(BATCH, dtype=torch.long)
    for iteration in range(n_iterations + N_WARM):
        if iteration == N_WARM:
            started = time.perf_counter()
        sgd.zero_grad()
        time.sleep(seconds(kind, rank, iteration, n_ranks, base))
        loss(net(x), y).backward()
        sgd.step()
    rates = [None] * n_ranks
    dist.all_gather_object(rates, BATCH * n_iterations / (time.perf_counter() - started))
    return sum(rates)


if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29517"))
    n = int(sys.argv[3])
    mp.spawn(work, (float(sys.argv[1]), int(sys.argv[2]), n), n)
