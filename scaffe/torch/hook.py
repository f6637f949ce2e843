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
    ranks.check(f"{algorithm}:{wire}" if wire else algorithm)

    def hook(state: Any, bucket: GradBucket) -> Future[torch.Tensor]:
        buffer = bucket.buffer()
        flat, calls = reducible(buffer), Calls(ranks, is_async=True)
        flat.div_(ranks.n_ranks)
        if wire:
            _sum_in_half(ranks, calls, flat, wire, algorithm)
        else:
            calls.run("allreduce", flat, "sum", algorithm=algorithm)
        calls.then(put_values, flat, buffer)
        return calls.work(buffer).get_future()

    return hook


def _sum_in_half(ranks: Communicator, calls: Calls, flat: torch.Tensor, wire: str, algorithm: str) -> None:
    """Sums over ranks in float32 what messages bring in `wire`; all ranks get the sums as `wire` rounds them."""
    half, own = torch.empty_like(flat, dtype=HALVES[wire]), ranks.part(flat.numel())
    calls.run("reduce_scatter", flat, "sum", algorithm=f"{algorithm}:{wire}")
    calls.between(half[own].copy_, flat[own])
    calls.run("allgather", half.view(torch.float16), algorithm=algorithm)
    calls.then(flat.copy_, half)
