"""Nets whose gradients are long, for ``benchmarks/torch_ddp.py``: ResNet-18, and an MLP of 60 million parameters."""

from __future__ import annotations

import torch
from torch import nn

IMAGE = (3, 64, 64)


class Block(nn.Module):
    """Two 3 x 3 convolutions with batch norm beside a shortcut (He et al., CVPR 2016, figure 2)."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out))
        self.shortcut = nn.Identity() if n_in == n_out and stride == 1 else nn.Sequential(
            nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, bottom: torch.Tensor) -> torch.Tensor:
        """Images (N, C, H, W)."""
        return torch.relu(self.way(bottom) + self.shortcut(bottom))


def resnet18() -> nn.Module:
    """The table's net of 18 layers (He et al., table 1), 1,000 classes: 11.7 million parameters."""
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
              (512, 512, 1)]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
        *(Block(*width) for width in widths), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def mlp() -> nn.Module:
    """Four layers on the flat image, 1,000 classes: 60.8 million parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(12288, 3072), nn.ReLU(), nn.Linear(3072, 4096), nn.ReLU(),
                         nn.Linear(4096, 2048), nn.ReLU(), nn.Linear(2048, 1000))


NETS = {"resnet18": (resnet18, 16), "mlp": (mlp, 32)}
"""A net, and images a rank."""
