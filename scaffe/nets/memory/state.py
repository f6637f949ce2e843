"""Parameters and gradients of large layers as arrays of a memory plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from scaffe.nets.activation_memory import backward_steps
from scaffe.nets.memory.parts import Held, forward_group
from scaffe.nets.memory.plans.iteration import Part
from scaffe.nets.memory.tier.mapping import inner
from scaffe.nets.net import Net

LEAST_BYTES = 1 << 20  # of a run's parameters: those of shorter runs always stay


class Run(Protocol):
    """Layers whose parameters are adjacent in the flat buffers, and are updated together: one layer, or a bucket."""

    @property
    def first_layer(self) -> int:
        """Index of the first layer, whose backward is the last to run."""

    @property
    def place(self) -> slice:
        """Their interval of the flat buffers, in elements."""


R = TypeVar("R", bound=Run)


class Layer(NamedTuple):
    """The parameters of one layer; see Run."""

    first_layer: int
    place: slice


def layers_alone(net: Net) -> list[Layer]:
    """A run for each layer that has parameters."""
    params, found = net.params, dict[int, Layer]()
    ends = [*(place.start for place in params.slices[1:]), params.n_elems]
    for param, place, end in zip(params.params, params.slices, ends, strict=True):
        first = found.get(param.layer_index, Layer(param.layer_index, place)).place.start
        found[param.layer_index] = Layer(param.layer_index, slice(first, end))
    return list(found.values())


def layers_of(net: Net, run: Run) -> list[int]:
    """The layers that have parameters in a run, ascending."""
    return sorted({param.layer_index for param, place in zip(net.params.params, net.params.slices, strict=True)
                   if run.place.start <= place.start < run.place.stop})


def large(net: Net, runs: Iterable[R]) -> list[R]:
    """Those of the runs that are long, are trained whole and share no parameters."""
    stay = {param.layer_index for param in net.params.params if not param.lr_mult}
    return [run for run in long(net, runs)
            if all(layer not in stay and net.nodes[layer].needs_backward for layer in layers_of(net, run))]


def long(net: Net, runs: Iterable[R]) -> list[R]:
    """Those of the runs that are long and share no parameters."""
    shared = {param.layer_index for param in net.params.params if param.sharers}
    return [run for run in runs if (run.place.stop - run.place.start) * net.params.dtype.itemsize >= LEAST_BYTES
            and shared.isdisjoint(layers_of(net, run))]


def update_step(net: Net, run: Run) -> int:
    """The step of the run's last backward, at whose end it may be updated."""
    return 2 * len(net.nodes) - 1 - run.first_layer


def parameters_held(net: Net, run: Run) -> list[Held]:
    """The whole pages of a run's parameters and gradients, which are updated at the end of its backward."""
    name, layers = net.nodes[run.first_layer].name, layers_of(net, run)
    forward = tuple(sorted({step for layer in layers for step in forward_group(net, layer)}))
    backward = tuple(sorted({step for layer in layers for step in backward_steps(net, layer)}))
    data, diff = (inner(flat[run.place].view(np.uint8)) for flat in (net.params.data, net.params.diff))
    return [Held(data, Part(f"{name} parameters", data.nbytes, forward, backward, lasts=True), layers),
            Held(diff, Part(f"{name} gradients", diff.nbytes, (), backward), layers)]


def weights_held(net: Net, run: Run) -> Held:
    """The whole pages of a run's parameters, which nobody changes."""
    layers = layers_of(net, run)
    forward = tuple(sorted({step for layer in layers for step in forward_group(net, layer)}))
    data = inner(net.params.data[run.place].view(np.uint8))
    return Held(data, Part(f"{net.nodes[run.first_layer].name} parameters", data.nbytes, forward, lasts=True), layers)


def history_held(net: Net, run: Run, memory: np.ndarray, step: int) -> Held:
    """A history of a run's, or of a part of it, which its update reads and writes in one step."""
    return Held(memory, history_part(net, run, memory.nbytes, step), [])


def history_part(net: Net, run: Run, n_bytes: int, step: int) -> Part:
    """What a plan knows of a history of a run's."""
    return Part(f"{net.nodes[run.first_layer].name} history", n_bytes, (), (step,), lasts=True)
