"""Parameters and gradients of large layers as arrays of a memory plan."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scaffe.nets.activation_memory import backward_steps
from scaffe.nets.memory.iteration import Part
from scaffe.nets.memory.pages import inner
from scaffe.nets.memory.parts import Held, forward_group
from scaffe.nets.net import Net

LEAST_BYTES = 1 << 20  # of a layer's parameters: those of smaller layers always stay


def large_layers(net: Net) -> dict[int, slice]:
    """By index, the interval of the flat buffers of each large layer that is trained and shares no parameters."""
    params, found = net.params, dict[int, slice]()
    ends = [*(place.start for place in params.slices[1:]), params.n_elems]
    for param, place, end in zip(params.params, params.slices, ends, strict=True):
        first = found.get(param.layer_index, place).start
        found[param.layer_index] = slice(first, end)
    stay = {param.layer_index for param in params.params if param.sharers or not param.lr_mult}
    return {layer: place for layer, place in found.items() if layer not in stay and net.nodes[layer].needs_backward
            and (place.stop - place.start) * params.dtype.itemsize >= LEAST_BYTES}


def update_step(net: Net, layer: int) -> int:
    """The step of a layer's backward, at whose end it may be updated."""
    return 2 * len(net.nodes) - 1 - layer


def parameters_held(net: Net, layer: int, place: slice) -> list[Held]:
    """The whole pages of a layer's parameters and gradients, which are updated at the end of its backward."""
    name, forward = net.nodes[layer].name, tuple(forward_group(net, layer))
    backward = tuple(sorted(set(backward_steps(net, layer))))
    data, diff = (inner(flat[place].view(np.uint8)) for flat in (net.params.data, net.params.diff))
    return [Held(data, Part(f"{name} parameters", data.nbytes, forward, backward, lasts=True), layer),
            Held(diff, Part(f"{name} gradients", diff.nbytes, (), backward), layer)]


def history_held(net: Net, layer: int, memory: np.ndarray, step: int, is_blank: Callable[[], bool] = bool) -> Held:
    """A history of a layer's, or of a part of it, which its update reads and writes in one step."""
    part = Part(f"{net.nodes[layer].name} history", memory.nbytes, (), (step,), lasts=True)
    return Held(memory, part, layer, is_blank)
