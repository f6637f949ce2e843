"""PyTorch's ranks for ``benchmarks/tensor_parallel.py``: ``tensor_torch.py FILE.npz N_RANKS FOLDER``.

DTensor's tensor parallelism over gloo, one thread a rank. A way: ``colwise`` splits every layer by outputs and gathers
them, ``colwise+rowwise`` by outputs and inputs in turn, ``+loss`` keeps the scores split (loss_parallel).
"""

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module

N_LAYERS = 5


class Way:
    """A net shared by all ranks, and its optimiser."""

    def __init__(self, how, files, mesh):
        words = how.split("+")
        layers = []
        for n in range(1, N_LAYERS + 1):
            weight, bias = (torch.from_numpy(files[f"fc{n}.{part}"]) for part in ("weight", "bias"))
            made = nn.Linear(weight.shape[1], weight.shape[0])
            made.load_state_dict({"weight": weight, "bias": bias})
            layers += [made, nn.Sigmoid()] if n < N_LAYERS else [made]
        self.net = parallelize_module(nn.Sequential(*layers), mesh, plan(words))
        self.around = loss_parallel if "loss" in words else nullcontext
        self.frames, self.labels = torch.from_numpy(files["data"]), torch.from_numpy(files["label"]).long()
        self.sgd = torch.optim.SGD(self.net.parameters(), 0.01, momentum=0.9)

    def step(self):
        """One step of training; the loss."""
        self.sgd.zero_grad()
        with self.around():
            loss = nn.functional.cross_entropy(self.net(self.frames), self.labels)
            loss.backward()
        self.sgd.step()
        return loss.detach()


def plan(words):
    """Layer's number among the modules → how it is split."""
    last = ColwiseParallel(output_layouts=Shard(-1) if "loss" in words else Replicate(),
                           use_local_output="loss" not in words)
    if "rowwise" not in words:
        return {str(2 * n): ColwiseParallel(output_layouts=Replicate()) for n in range(N_LAYERS)}
    return {"0": ColwiseParallel(), "2": RowwiseParallel(), "4": ColwiseParallel(), "6": RowwiseParallel(), "8": last}


def serve(rank, path, n_ranks, folder):
    """Serve commands until the pipe closes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=n_ranks)
    mesh, files, ways = init_device_mesh("cpu", (n_ranks,)), dict(np.load(path)), {}
    with Path(folder, f"commands.{rank}").open() as commands:
        for line in commands:
            how, n_steps = line.split()
            if how not in ways:
                ways[how] = Way(how, files, mesh)
            dist.barrier()
            start = time.perf_counter()
            for _ in range(int(n_steps)):
                loss = ways[how].step()
            told = [None] * n_ranks
            dist.all_gather_object(told, time.perf_counter() - start)
            loss = loss.full_tensor() if hasattr(loss, "full_tensor") else loss
            if rank == 0:
                print(json.dumps({"seconds": max(told), "loss": float(loss)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(serve, (sys.argv[1], int(sys.argv[2]), sys.argv[3]), int(sys.argv[2]))
