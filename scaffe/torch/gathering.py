"""All-gather and reduce-scatter of tensors that lie apart, as collectives on one flat buffer."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from scaffe.torch.calls import Calls
from scaffe.torch.reduction import Reduction
from scaffe.torch.tensors import adjacent, movable, put_bytes, put_values, reducible

Tensors = Sequence[torch.Tensor]


def gather_all(calls: Calls, outputs: Tensors, own: torch.Tensor, rank: int) -> None:
    """Adds to `calls`: outputs[r] becomes rank r's `own`; in place where the outputs lie one behind another.

    Args:
        calls: of all ranks.
        outputs: one for each rank.
        own: this rank's; may be outputs[rank] itself.
        rank: this one.
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

    Args:
        calls: of all ranks.
        output: of the shape of inputs[rank].
        inputs: one for each rank, the same shapes on all ranks; they stay.
        rank: this one.
        reduction: how.
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
