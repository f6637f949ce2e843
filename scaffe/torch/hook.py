"""DistributedDataParallel's gradients over our all-reduce, whatever backend its process group has."""

# No `from __future__ import annotations`: register_comm_hook compares the hook's with types.
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import GradBucket
from torch.futures import Future

from scaffe.collectives import Communicator
from scaffe.torch.calls import Calls
from scaffe.torch.rendezvous import world
from scaffe.torch.tensors import put_values, reducible

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
WIDE = ("bf16",)
"""Wires with float32's range: sums are divided after they have been received, each rank its part."""
Hook = Callable[[Any, GradBucket], Future[torch.Tensor]]


def ddp_hook(communicator: Communicator | None = None, wire: str = "", algorithm: str = "own") -> Hook:
    """Makes a communication hook: `model.register_comm_hook(None, ddp_hook())`.

    Each bucket of gradients becomes the ranks' mean, in place; a helper thread sees to it while backward goes on.

    Args:
        communicator: of the ranks that the model is replicated on, in the order of its process group; default: all.
        wire: "bf16" or "fp16" for messages of half the length and a mean rounded to that, sums still float32; empty for
            float32 throughout.
        algorithm: as `Communicator.allreduce` takes it; with a wire, as `reduce_scatter` and `allgather` take it.

    Raises:
        CommError: there is no such wire or algorithm.
    """
    ranks = world() if communicator is None else communicator
    ranks.algorithms.check(f"{algorithm}:{wire}" if wire else algorithm)

    halves: dict[int, torch.Tensor] = {}

    def hook(state: Any, bucket: GradBucket) -> Future[torch.Tensor]:
        buffer = bucket.buffer()
        flat, calls = reducible(buffer), Calls(ranks, is_async=True)
        if wire not in WIDE:
            flat.div_(ranks.n_ranks)
        if wire:
            half = _kept(halves, bucket.index(), flat, HALVES[wire])
            _mean_in_half(ranks, calls, flat, half, wire, algorithm)
        else:
            calls.run("allreduce", flat, "sum", algorithm=algorithm)
        calls.then(put_values, flat, buffer)
        return calls.work(buffer).get_future()

    return hook


def _kept(halves: dict[int, torch.Tensor], index: int, flat: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A bucket's memory in half precision: the same in every step, since plans are cached by address."""
    if index not in halves or halves[index].shape != flat.shape or halves[index].device != flat.device:
        halves[index] = torch.empty_like(flat, dtype=dtype)
    return halves[index]


def _mean_in_half(ranks: Communicator, calls: Calls, flat: torch.Tensor, half: torch.Tensor, wire: str,
                  algorithm: str) -> None:
    """Sums messages in `wire` over ranks, in float32; all ranks get the means, rounded to `wire`."""
    own = ranks.part(flat.numel())
    calls.run("reduce_scatter", flat, "sum", algorithm=f"{algorithm}:{wire}")
    calls.between(_divide, flat[own], ranks.n_ranks if wire in WIDE else 1, half[own])
    calls.run("allgather", half.view(torch.float16), algorithm=algorithm)
    calls.then(flat.copy_, half)


def _divide(sums: torch.Tensor, divisor: int, quotients: torch.Tensor) -> None:
    torch.div(sums, divisor, out=quotients)
