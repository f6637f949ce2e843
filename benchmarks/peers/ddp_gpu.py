"""PyTorch's DistributedDataParallel over gloo on ranks that share GPUs, in its own interpreter; a rank of a launcher.

    mpirun -np N PYTHON_WITH_TORCH ddp_gpu.py HOST --batch N_IN_ALL --precision bf16 --steps N NET=FILE.npz ...

Rank 0 is on HOST. Each rank has its share of the file's batch on its GPU. channels_last, cudnn.benchmark, fused SGD,
gradients that lie in the buckets. A line of JSON for each net.
"""

import argparse
import json
import os
import time
from pathlib import Path

if Path("/sys/class/net/eth0").exists():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch_nets import Net  # noqa: E402

PORT, WARM_STEPS = 29417, 5
RANKS = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
"""The launchers' variables; without one this is the only rank."""


def place(variables=RANKS):
    """This rank's number, and how many there are."""
    found = next((pair for pair in variables if pair[0] in os.environ), None)
    return tuple(int(os.environ[name]) for name in found) if found else (0, 1)


def make_step(name, files, options, device):
    """The net's training step on this rank's share."""
    net = Net(name, files).to(device).to(memory_format=torch.channels_last)
    model = DistributedDataParallel(net, gradient_as_bucket_view=True)
    images = torch.from_numpy(files["data"]).to(device).to(memory_format=torch.channels_last)
    labels = torch.from_numpy(files["label"]).to(device)
    sgd = torch.optim.SGD(net.parameters(), 1e-4, momentum=0.9, weight_decay=5e-4, fused=True)
    is_half = options.precision == "bf16"

    def step():
        sgd.zero_grad(set_to_none=False)
        with torch.autocast(device.type, torch.bfloat16, enabled=is_half):
            loss = model(images, labels)
        loss.backward()
        sgd.step()
        return loss
    return step


def measure(name, path, options, device):
    """One net's row."""
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    files, n_images = dict(np.load(path)), options.batch // n_ranks
    chosen = np.arange(rank * n_images, (rank + 1) * n_images)
    files |= {key: files[key].take(chosen, axis=0, mode="wrap") for key in ("data", "label")}
    step = make_step(name, files, options, device)
    for _ in range(WARM_STEPS):
        float(step().detach())
    dist.barrier()
    started = time.perf_counter()
    for _ in range(options.steps):
        loss = step()
    float(loss.detach())  # waits for the device
    seconds = [None] * n_ranks
    dist.all_gather_object(seconds, (time.perf_counter() - started) / options.steps)
    return {"net": name, "way": "ddp:gloo", "ranks": n_ranks, "images_per_second": n_images * n_ranks / max(seconds),
            "milliseconds": max(seconds) * 1e3, "torch": torch.__version__}


def main():
    """Measure net after net."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("host")
    parser.add_argument("nets", nargs="+", metavar="NET=FILE.npz")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--precision", default="bf16", choices=("fp32", "tf32", "bf16"))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = options.precision != "fp32"
    rank, n_ranks = place()
    dist.init_process_group("gloo", f"tcp://{options.host}:{PORT}", rank=rank, world_size=n_ranks)
    for each in options.nets:
        row = measure(*each.split("=", 1), options, torch.device(options.device))
        if rank == 0:
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
