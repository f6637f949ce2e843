"""A small PyTorch net learns Fashion-MNIST on several ranks, its gradients summed by our collectives.

    mpirun -np 2 python examples/torch_ddp.py

Needs `pip install 'scaffe[mpi,torch]'`. Each rank learns from its share of the images in examples/fashion_mnist.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import scaffe.torch  # noqa: F401 - makes the backend known
from scaffe.data.records.idx import read_idx

FOLDER = Path(__file__).parent / "fashion_mnist"


def images_and_labels() -> TensorDataset:
    """The images as float32 (N, 1, 28, 28) from 0 to 1, the labels as int64 (N,)."""
    images = torch.from_numpy(read_idx(FOLDER / "train-images-idx3-ubyte.gz", 3))
    labels = torch.from_numpy(read_idx(FOLDER / "train-labels-idx1-ubyte.gz", 1))
    return TensorDataset(images.unsqueeze(1).float() / 256, labels.long())


def main() -> None:
    """Train; rank 0 prints each epoch's mean loss over all ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    epochs = parser.parse_args().epochs
    dist.init_process_group("scaffe")
    torch.manual_seed(1)
    net = DistributedDataParallel(nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 12 * 12, 64), nn.ReLU(),
        nn.Linear(64, 10)))
    optimizer, dataset = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9), images_and_labels()
    sampler = DistributedSampler(dataset)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        batches = DataLoader(dataset, batch_size=64 // dist.get_world_size(), sampler=sampler)
        for images, labels in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(batches)
        dist.all_reduce(total, dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
