"""A rank of PyTorch's for ``benchmarks/rank_loss.py``, under torchrun: ``elastic_torch.py N_ITERATIONS``.

The net, batch and rule of that file under DistributedDataParallel over gloo. Rank 0 writes a checkpoint after every
20th iteration, from which all begin where there is one, and says which iteration it begins.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

N_IMAGES, N_INPUTS, N_HIDDEN, N_CLASSES, EVERY = 48, 784, 128, 10, 20
CHECKPOINT = Path("checkpoint.pt")


def main():
    """Trains."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, batch = dist.get_rank(), N_IMAGES // dist.get_world_size()
    net = DistributedDataParallel(nn.Sequential(nn.Linear(N_INPUTS, N_HIDDEN), nn.ReLU(),
                                                nn.Linear(N_HIDDEN, N_CLASSES)))
    sgd, loss, first = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9), nn.CrossEntropyLoss(), 0
    if CHECKPOINT.exists():
        saved = torch.load(CHECKPOINT)
        first = saved["iteration"]
        net.load_state_dict(saved["net"])
        sgd.load_state_dict(saved["sgd"])
    x, y = torch.randn(batch, N_INPUTS), torch.ones(batch, dtype=torch.long)
    for iteration in range(first, int(sys.argv[1])):
        if rank == 0:
            print(f"Iteration {iteration} (", flush=True)
        sgd.zero_grad()
        loss(net(x), y).backward()
        sgd.step()
        if rank == 0 and (iteration + 1) % EVERY == 0:
            part = CHECKPOINT.with_suffix(".part")
            torch.save({"iteration": iteration + 1, "net": net.state_dict(), "sgd": sgd.state_dict()}, part)
            part.rename(CHECKPOINT)
    dist.destroy_process_group()


main()
