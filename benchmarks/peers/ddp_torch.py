"""PyTorch's ranks for ``benchmarks/ddp.py``: ``ddp_torch.py NET FILE.npz N_RANKS FOLDER``, in PyTorch's interpreter.

DistributedDataParallel over gloo, one thread a rank; a way is a variant of ``torch_nets.py``.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_nets import Variant


def make_variant(name, how, files, rank, n_ranks, drops):
    """The variant on this rank's share of the batch, with or without dropout, its net wrapped."""
    batch = len(files["data"]) // n_ranks
    share = {**files, **{k: files[k][rank * batch:(rank + 1) * batch] for k in ("data", "label")}}
    one = Variant(name, how, share)
    for module in one.net.modules():
        if isinstance(module, nn.Dropout) and not drops:
            module.p = 0.0
    one.net = DistributedDataParallel(one.net, gradient_as_bucket_view=how != "plain")
    return one


def train(one, n_steps):
    """Returns the seconds and the last loss."""
    start = time.perf_counter()
    for _ in range(n_steps):
        one.sgd.zero_grad()
        loss = one.net(one.images, one.labels)
        loss.backward()
        one.sgd.step()
    return time.perf_counter() - start, float(loss.detach())


def serve(rank, name, path, n_ranks, folder):
    """Serve commands until the pipe closes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=n_ranks)
    files, variants = dict(np.load(path)), {}
    with Path(folder, f"commands.{rank}").open() as commands:
        for line in commands:
            how, n_steps, *check = line.split()
            if check or how not in variants:
                variants[how] = make_variant(name, how, files, rank, n_ranks, drops=not check)
            dist.barrier()
            told = [None] * n_ranks
            dist.all_gather_object(told, train(variants.pop(how) if check else variants[how], int(n_steps)))
            if rank == 0:
                print(json.dumps({"seconds": max(s for s, _ in told), "loss": sum(v for _, v in told) / n_ranks}),
                      flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(serve, (sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]), int(sys.argv[3]))
