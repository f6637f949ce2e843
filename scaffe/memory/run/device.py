"""Where recordings of passes are cut, so that a plan's moves lie between them: a pure rule."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from scaffe.layers.kernels import device
from scaffe.mapped_memory import forget
from scaffe.memory.backing.pinned import Pinned
from scaffe.memory.plan.plan import Action, Do, Plan
from scaffe.memory.problem.chunks import Run, bytes_apart
from scaffe.memory.problem.iteration import Iteration
from scaffe.memory.problem.tensors import forward_group
from scaffe.nets.activation_memory import backward_block
from scaffe.nets.cuda_graphs import Recorded
from scaffe.nets.flat_pieces import copy_into
from scaffe.nets.net import Net
from scaffe.nets.steps import Steps

BETWEEN = (Do.SAVE, Do.GONE, Do.FETCH, Do.HERE)  # the others are a device's own work, or none


class Cuts(NamedTuple):
    """Indices of layers at which stretches of layers begin.

    Attributes:
        forward, backward: for either way; a stretch runs backward from the layer before the next cut down to its own.
    """

    forward: frozenset[int]
    backward: frozenset[int]


def cuts(plan: Plan, forward: Sequence[range], backward: Sequence[range], updates: Collection[int] = (),
         steps: Steps | None = None) -> Cuts:
    """The cuts for a plan. A stretch begins with what stands before its first step that moves something, which is its
    first of all, or one of the first pass. It ends with what stands behind and between all others: these belong to its
    last pass, which has run by then.

    Args:
        plan: the plan.
        forward, backward: for each layer, those that run in one pass with it.
        updates: steps of backward behind which parameters are updated.
        steps: numbers of the steps, of which each layer has one in backward.
    """
    steps = steps or Steps(len(forward))
    ahead, back = set[int](), set[int]()
    for index, (group, block) in enumerate(zip(forward, backward, strict=True)):
        step = steps.backward(index)[0]
        if _moves(plan.before[index]):
            ahead.add(group.start)
        if _moves(plan.after[index]):
            ahead.add(group.stop)
        if step < len(plan.before) and _moves(plan.before[step]):
            back.add(block.stop if index == block[-1] else block.start)
        if step < len(plan.after) and (step in updates or _moves(plan.after[step])):
            back.add(block.start)
    return Cuts(frozenset(ahead), frozenset(back))


def _moves(actions: Sequence[Action]) -> bool:
    return any(action.do in BETWEEN for action in actions)


def pinned_below(net: Net, iteration: Iteration, n_bytes: int) -> Pinned:
    """Host memory below the device that a net computes on.

    Args:
        net: the net.
        iteration: its arrays.
        n_bytes: that these may have on the device.
    """
    most = sum(part.n_bytes for part in iteration.parts)
    return Pinned(lambda length: net.context.kernels.zeros(length, np.dtype(np.uint8)), min(n_bytes, most))


def on_host(net: Net, run: Run) -> np.ndarray:
    """A page-locked place for a run's parameters, with their contents: uint8, ``bytes_apart``."""
    values = net.context.kernels.to_host(net.params.data[run.place])
    place = device.pinned(bytes_apart(net, run), np.uint8)
    place[:values.nbytes].view(values.dtype)[...] = values
    forget(values)  # they may have been made on the host
    return place


def place_own_parameters(test: Net, trained: Net) -> None:
    """Have a test net's parameters on the device: the training net's, which lie there, and those that only it has."""
    for blob in test.own_blobs:
        if isinstance(blob.data_flat, np.ndarray):  # made on the host
            memory = test.context.kernels.zeros(blob.n_elems, blob.dtype)
            copy_into(memory, blob.data_flat)
            blob.bind_data(memory)
    test.share_trained_layers(trained)


def cut_recordings(net: Net, plan: Plan, updates: Collection[int], passes: Any) -> None:
    """Have recordings of a net's passes begin and end where a plan moves something, or layers are updated, and be made
    anew.

    Args:
        net: the net.
        plan: that its tier follows.
        updates: steps behind which it updates layers.
        passes: what runs the net's passes: recordings, or the net itself, which has none.
    """
    if isinstance(passes, Recorded):
        layers = range(len(net.nodes))
        found = cuts(plan, [forward_group(net, i) for i in layers], [backward_block(net, i) for i in layers], updates,
                     net.steps)
        passes.cut(found.forward, found.backward)
