"""Layers whose parameters a memory plan takes together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

from scaffe.nets.memory.tier.mapping import rounded
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
    return [run for run in runs if bytes_of(net, run) >= LEAST_BYTES
            and shared.isdisjoint(layers_of(net, run))]


def bytes_of(net: Net, run: Run) -> int:
    """Of a run's parameters."""
    return int(run.place.stop - run.place.start) * net.params.dtype.itemsize


def bytes_apart(net: Net, run: Run) -> int:
    """The same in whole pages."""
    return rounded(bytes_of(net, run))
