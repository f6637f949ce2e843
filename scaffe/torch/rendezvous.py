"""Passes the launcher's ranks and addresses to torch.distributed: `init_process_group("scaffe")` needs no more."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import MutableMapping
from functools import cache
from math import prod

import numpy as np
import torch

from scaffe.collectives import Communicator
from scaffe.collectives.launch import has_launcher

PORTS = range(20_000, 32_768)
"""Below the ports that systems give to outgoing connections: one that is free now is free a moment later."""


@cache
def world() -> Communicator:
    """The communicator of all ranks of the job; MPI starts at the first call."""
    return Communicator.world()


def announce(environment: MutableMapping[str, str] = os.environ) -> None:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT as far as they are not set; all ranks call it.

    Nothing happens in a process that no MPI launcher started. A RANK that is set, as torchrun does, is believed.
    """
    if not has_launcher() or "RANK" in environment:
        return
    ranks = world()
    host, port = ranks.bcast_object(_meeting_place() if ranks.rank == 0 else None)
    if ranks.topology.n_nodes == 1:
        host = "127.0.0.1"
    for name, value in (("RANK", ranks.rank), ("WORLD_SIZE", ranks.n_ranks), ("LOCAL_RANK", ranks.node_rank),
                        ("MASTER_ADDR", host), ("MASTER_PORT", port)):
        environment.setdefault(name, str(value))


def _meeting_place() -> tuple[str, int]:
    """This host's name, and a port on which nothing listens."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return socket.gethostname(), port
    raise OSError(f"no port from {PORTS.start} to {PORTS.stop - 1} is free")


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
