"""How parameters of large layers are updated behind their backward: piece by piece, each in a step of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from scaffe.nets.flat_params import ALIGN_ELEMS
from scaffe.nets.memory.runs import Run, bytes_of, layers_of
from scaffe.nets.net import Net

PIECE_BYTES = 16 << 20  # of parameters that are updated at once, where their layer has no blocks of rows


def come_by_rows(net: Net, runs: Iterable[Run]) -> None:
    """Have gradients of runs computed piece by piece, each where the one before was, as far as layers can.

    Args:
        net: whose ``steps`` are set.
        runs: that are updated behind their backward, and whose gradients nobody else reads.
    """
    able = {run.first_layer for run in runs if len(layers_of(net, run)) == 1
            and net.nodes[run.first_layer].layer.param_rows}
    net.steps = replace(net.steps, by_rows=frozenset(able))


def pieces(net: Net, run: Run) -> list[slice]:
    """The intervals of a run, in elements, that are updated one after another, so that their histories need not be
    there together: blocks of rows, if its gradients come so."""
    place = run.place
    if run.first_layer in net.steps.by_rows:
        layer = net.nodes[run.first_layer].layer
        starts = [place.start + rows.start * layer.blobs[0].count(1) for rows in layer.param_rows]
        return [slice(start, stop) for start, stop in pairwise([*starts, place.stop])]
    n_pieces = max(1, bytes_of(net, run) // PIECE_BYTES)
    step = -(-(place.stop - place.start) // n_pieces // ALIGN_ELEMS) * ALIGN_ELEMS
    return [slice(start, min(start + step, place.stop)) for start in range(place.start, place.stop, step)]


def count_updates(net: Net, n_pieces: Mapping[int, int]) -> None:
    """Give runs steps behind their backward: one for each of so many pieces that are updated there, and a last one, in
    which the others get the parameters.

    Args:
        net: whose ``steps`` are set.
        n_pieces: by first layer of a run.
    """
    net.steps = replace(net.steps, n_updates={layer: n + 1 for layer, n in n_pieces.items()})


def gradients_place(net: Net, run: Run) -> slice:
    """Where a run's gradients lie in the flat buffer; of those that come piece by piece, each in turn."""
    if run.first_layer not in net.steps.by_rows:
        return run.place
    longest = max(piece.stop - piece.start for piece in pieces(net, run))
    return slice(run.place.start, run.place.start + longest)
