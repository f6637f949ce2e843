"""Parameters and gradients of large layers as arrays of a memory plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from scaffe.nets.activation_memory import backward_steps
from scaffe.nets.flat_params import ALIGN_ELEMS
from scaffe.nets.memory.parts import Held, forward_group
from scaffe.nets.memory.plans.costs import BYTES_A_SECOND
from scaffe.nets.memory.plans.iteration import Again, Part
from scaffe.nets.memory.tier.mapping import inner, rounded
from scaffe.nets.net import Net

PIECE_BYTES = 16 << 20  # of parameters that are updated at once
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


def pieces(net: Net, run: Run) -> list[slice]:
    """The intervals of a run, in elements, that may be updated one after another, so that their histories need not be
    there together."""
    place, n_pieces = run.place, max(1, bytes_of(net, run) // PIECE_BYTES)
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


def parameters_held(net: Net, run: Run) -> list[Held]:
    """The whole pages of a run's parameters and gradients, which are updated behind its backward."""
    layers, (forward, backward) = layers_of(net, run), _uses(net, run)
    data, diff = (inner(flat[run.place].view(np.uint8)) for flat in (net.params.data, net.params.diff))
    return [Held(data, Part(_named(net, run, "parameters"), data.nbytes, forward, backward, lasts=True), layers),
            Held(diff, Part(_named(net, run, "gradients"), diff.nbytes, (), backward), layers)]


def renewed(parameters: Held, renew: Callable[[], None] | None) -> Held:
    """The same, of parameters that do not last, since somebody writes them before each forward.

    Args:
        parameters: from ``parameters_held``.
        renew: writes once more, in backward, what forward had; None: nobody can.
    """
    again = None if renew is None else Again((), (), 2 * parameters.part.n_bytes / BYTES_A_SECOND)
    part = replace(parameters.part, lasts=False, again=again)
    return replace(parameters, part=part, renew=renew or parameters.renew)


def fetched(parameters: Held) -> Held:
    """The same, of parameters that somebody may write anew before a forward, right before it reads them."""
    return replace(parameters, part=replace(parameters.part, changes_ahead=True))


def parameters_apart(net: Net, run: Run, place: np.ndarray, backward: bool = True) -> Held:
    """A run's parameters, which a device has in memory that is bound to them.

    Args:
        net: the net, its parameters divided there.
        run: the run.
        place: on the host, with their contents: uint8, ``bytes_apart``.
        backward: whether there is one, which reads them, and whose end changes them.
    """
    ahead, back = _uses(net, run)
    part = Part(_named(net, run, "parameters"), bytes_apart(net, run), ahead, back if backward else (), lasts=True)
    return Held(place, part, layers_of(net, run), partial(net.params.put, "data", run.place))


def gradients_apart(net: Net, run: Run) -> Held:
    """A run's gradients, likewise; they last for a few steps of backward."""
    part = Part(_named(net, run, "gradients"), bytes_apart(net, run), (), _uses(net, run)[1])
    return Held(np.empty(0, np.uint8), part, layers_of(net, run), partial(net.params.put, "diff", run.place))


def bytes_of(net: Net, run: Run) -> int:
    """Of a run's parameters."""
    return int(run.place.stop - run.place.start) * net.params.dtype.itemsize


def bytes_apart(net: Net, run: Run) -> int:
    """The same in whole pages."""
    return rounded(bytes_of(net, run))


def _named(net: Net, run: Run, what: str) -> str:
    return f"{net.nodes[run.first_layer].name} {what}"


def _uses(net: Net, run: Run) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The steps of forward, and those of backward, that use a run's parameters."""
    layers = layers_of(net, run)
    backward = {step for layer in layers for step in backward_steps(net, layer)}
    return (tuple(sorted({step for layer in layers for step in forward_group(net, layer)})),
            tuple(sorted(backward | {*net.steps.updates(run.first_layer)})))


def weights_held(net: Net, run: Run) -> Held:
    """The whole pages of a run's parameters, which nobody changes."""
    data = inner(net.params.data[run.place].view(np.uint8))
    part = Part(_named(net, run, "parameters"), data.nbytes, _uses(net, run)[0], lasts=True)
    return Held(data, part, layers_of(net, run))


def history_held(net: Net, run: Run, memory: np.ndarray, step: int) -> Held:
    """A history of a run's, or of a part of it, which its update reads and writes in one step."""
    return Held(memory, history_part(net, run, memory.nbytes, step), [])


def history_part(net: Net, run: Run, n_bytes: int, step: int) -> Part:
    """What a plan knows of a history of a run's."""
    return Part(_named(net, run, "history"), n_bytes, (), (step,), lasts=True)
