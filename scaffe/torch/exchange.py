"""Sends tensors between pairs of ranks, over the communicator's messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.runtime.point_to_point import MAX_TAG
from scaffe.torch.calls import Calls, Reduction
from scaffe.torch.tensors import adjacent, array_of, movable, put_bytes, put_values, raw, reducible
from scaffe.torch.work import MessageWork

TAG = MAX_TAG
"""Of all_to_all, gather and scatter; programs' own tags lie below."""


def check_tag(tag: int) -> int:
    """Checks a program's tag. Raises CommError where it is not below `TAG`."""
    if not 0 <= tag < TAG:
        raise CommError(f"tag must be 0 to {TAG - 1}, not {tag}")
    return tag


def exchange(communicator: Communicator, outgoing: Mapping[int, torch.Tensor], incoming: Mapping[int, torch.Tensor],
             result: Any, tag: int = TAG) -> MessageWork:
    """Starts sends and receives that are waited for together; a tensor without elements is not sent.

    Args:
        communicator: whose messages they are.
        outgoing: what each rank is sent. Tensors on a GPU go through host memory.
        incoming: what is written by what each rank sends, of the same number of bytes; -1 for whichever rank.
        result: of the work's future.
        tag: of all of them.
    """
    own, messages, steps = communicator.rank, [], []
    for peer, tensor in incoming.items():
        if tensor.numel() and peer != own:
            flat = raw(tensor)
            messages.append(communicator.messages.irecv(array_of(flat), peer, tag))
            steps.append(partial(put_bytes, flat, tensor))
    for peer, tensor in outgoing.items():
        if tensor.numel() and peer != own:
            messages.append(communicator.messages.isend(array_of(raw(tensor)), peer, tag))
    if own in incoming and own in outgoing:
        incoming[own].detach().copy_(outgoing[own])
    return MessageWork(messages, steps, result)


Tensors = Sequence[torch.Tensor]


def gather_all(calls: Calls, outputs: Tensors, own: torch.Tensor, rank: int) -> None:
    """Adds to `calls`: outputs[r] becomes rank r's `own`; in place where the outputs lie one behind another.

    `own` may be outputs[rank] itself.
    """
    if any(output.shape != outputs[0].shape for output in outputs):
        _gather_unequal(calls, outputs, own, rank)
        return
    piece, whole = movable(own), adjacent(outputs)
    if whole is None or movable(outputs[0]).data_ptr() != outputs[0].data_ptr():
        whole = piece.new_empty(len(outputs) * piece.numel())
    whole = movable(whole)
    pieces = whole.view(len(outputs), -1).unbind()
    if pieces[rank].data_ptr() != piece.data_ptr():
        pieces[rank].copy_(piece)
    calls.run("allgather", whole)
    for flat, output in zip(pieces, outputs, strict=True):
        calls.then(put_bytes, flat, output)


def _gather_unequal(calls: Calls, outputs: Tensors, own: torch.Tensor, rank: int) -> None:
    outputs[rank].detach().copy_(own)
    for root, output in enumerate(outputs):
        flat = movable(output)
        calls.run("bcast", flat, root)
        calls.then(put_bytes, flat, output)


def reduce_and_scatter(calls: Calls, output: torch.Tensor, inputs: Tensors, rank: int, reduction: Reduction) -> None:
    """Adds to `calls`: `output` becomes the reduction of inputs[rank] over ranks, through a copy of the inputs.

    `inputs` has one tensor for each rank, the same shapes on all ranks; they stay.
    """
    if any(tensor.shape != inputs[0].shape for tensor in inputs):
        flats = [reducible(tensor.clone()) for tensor in inputs]
        for root, flat in enumerate(flats):
            calls.run("reduce", flat, root, reduction.op)
    else:
        whole = torch.cat([reducible(tensor) for tensor in inputs])
        flats = list(whole.view(len(inputs), -1).unbind())
        calls.run("reduce_scatter", whole, reduction.op)
    reduction.finish(calls, flats[rank])
    calls.then(put_values, flats[rank], output)
