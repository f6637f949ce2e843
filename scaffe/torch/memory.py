"""Tensors in memory that the node's ranks share, where collectives need no copy."""

from __future__ import annotations

from math import prod

import numpy as np
import torch

from scaffe.collectives import Communicator
from scaffe.torch.rendezvous import world


def empty(*shape: int, dtype: torch.dtype | None = None, device: str = "cpu",
          communicator: Communicator | None = None) -> torch.Tensor:
    """Allocates a tensor that the other ranks of the node have mapped; all ranks of the communicator call it alike.

    Args:
        shape: of the tensor.
        dtype: any of PyTorch's; default: torch.get_default_dtype().
        device: "cpu", or "cuda" for the current GPU.
        communicator: on which collectives are fastest with it; default: that of all ranks.

    Returns:
        The tensor, contiguous. Its values are zeros.

    Raises:
        CommError: as `Communicator.alloc`.
    """
    dtype = torch.get_default_dtype() if dtype is None else dtype
    ranks = world() if communicator is None else communicator
    n_bytes = prod(shape) * dtype.itemsize
    memory = ranks.alloc(-(-n_bytes // 8), np.int64, "host" if device == "cpu" else "device")
    words = torch.from_numpy(memory) if device == "cpu" else torch.from_dlpack(memory)
    return words.view(torch.uint8)[:n_bytes].view(dtype).view(shape)
