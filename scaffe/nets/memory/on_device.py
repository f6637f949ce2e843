"""A net within limited memory of a device: the memory below it, and where recordings of its passes are cut."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.nets.activation_memory import backward_block
from scaffe.nets.cuda_graphs import Recorded
from scaffe.nets.flat_pieces import copy_into
from scaffe.nets.memory.parts import forward_group
from scaffe.nets.memory.plans.cuts import cuts
from scaffe.nets.memory.plans.iteration import Iteration
from scaffe.nets.memory.plans.plan import Plan
from scaffe.nets.memory.runs import Run, bytes_apart
from scaffe.nets.memory.tier.mapping import forget
from scaffe.nets.memory.tier.pinned import Pinned
from scaffe.nets.net import Net


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
