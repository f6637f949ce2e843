"""Parameters and gradients of large layers as arrays of a memory plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from scaffe.mapped_memory import PAGE_BYTES, address, inner, rounded
from scaffe.memory.problem.costs import BYTES_A_SECOND
from scaffe.memory.problem.iteration import Again, Part
from scaffe.memory.problem.layer_groups import Run, blocks_place, bytes_apart, layers_of, pages_of_blocks, pieces
from scaffe.memory.problem.tensors import Held, forward_group, is_worth_moving
from scaffe.nets.blob_memory import backward_steps
from scaffe.nets.net import Net


def parameters_held(net: Net, run: Run) -> list[Held]:
    """The whole pages of a run's parameters, which are updated within backward. Where they are so block by block, they
    come and leave in several arrays; see ``pages_of_blocks``."""
    layers, (forward, backward) = layers_of(net, run), _uses(net, run)
    return [Held(data, Part(_named(net, run, "parameters"), data.nbytes, forward, backward, late=late, lasts=True),
                 layers) for data, late in _arrays(net, run) if data.nbytes]


def gradients_held(net: Net, run: Run) -> Held:
    """The same of a run's gradients, all of which are there for its update."""
    diff = inner(net.params.diff[run.place].view(np.uint8))
    return Held(diff, Part(_named(net, run, "gradients"), diff.nbytes, (), _uses(net, run)[1]), layers_of(net, run))


def blocks_held(net: Net, runs: Sequence[Run]) -> list[Held]:
    """The same of the gradients of runs that come by blocks of rows: one array, if there are any."""
    runs = [run for run in runs if run.first_layer in net.steps.behind]
    if not runs:
        return []
    diff = inner(net.params.diff[blocks_place(net, runs)].view(np.uint8), PAGE_BYTES)
    whole = sum(inner(net.params.diff[run.place].view(np.uint8)).nbytes for run in runs)
    return [Held(diff, _of_rows(net, runs, diff.nbytes), [run.first_layer for run in runs],
                 spared=whole - diff.nbytes)]


def _of_rows(net: Net, runs: Sequence[Run], n_bytes: int) -> Part:
    steps = sorted(step for run in runs for step in net.steps.rows(run.first_layer))
    return Part("gradients of rows", n_bytes, (), tuple(steps), momentary=True)


def _arrays(net: Net, run: Run) -> list[tuple[np.ndarray, tuple[int, ...]]]:
    """The whole pages of a run's parameters, uint8: together, or divided by blocks of rows, with the steps in which
    these are updated."""
    if run.first_layer not in net.steps.behind:
        return [(inner(net.params.data[run.place].view(np.uint8)), ())]
    memory, steps = net.params.data[run.place].view(np.uint8), net.steps.rows(run.first_layer)
    start, item = address(memory), net.params.dtype.itemsize
    edges = [start + (piece.start - run.place.start) * item for piece in pieces(net, run)]
    return [(memory[where.start - start:where.stop - start], tuple(steps[block] for block in blocks))
            for where, blocks in pages_of_blocks([*edges, start + memory.nbytes])
            if is_worth_moving(where.stop - where.start)]


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
    back = tuple(sorted({*back, *net.steps.rows(run.first_layer)})) if backward else ()
    part = Part(_named(net, run, "parameters"), bytes_apart(net, run), ahead, back, lasts=True)
    return Held(place, part, layers_of(net, run), partial(net.params.put, "data", run.place))


def gradients_apart(net: Net, runs: Sequence[Run]) -> list[Held]:
    """Runs' gradients, likewise; they last for a few steps of backward. Those that come by blocks of rows share one
    array."""
    found, by_rows = list[Held](), [run for run in runs if run.first_layer in net.steps.behind]
    for run in (run for run in runs if run not in by_rows):
        part = Part(_named(net, run, "gradients"), bytes_apart(net, run), (), _uses(net, run)[1])
        found.append(Held(np.empty(0, np.uint8), part, layers_of(net, run), partial(net.params.put, "diff", run.place)))
    if by_rows:
        place = blocks_place(net, by_rows)
        part = _of_rows(net, by_rows, rounded((place.stop - place.start) * net.params.dtype.itemsize))
        found.append(Held(np.empty(0, np.uint8), part, [run.first_layer for run in by_rows],
                          partial(net.params.put_elements, "diff", place)))
    return found


def gradient_places(net: Net, runs: Sequence[Run]) -> list[slice]:
    """The intervals of the flat buffer of runs' gradients, that of blocks of rows by itself."""
    by_rows = [run for run in runs if run.first_layer in net.steps.behind]
    blocks = blocks_place(net, by_rows) if by_rows else slice(0, 0)
    edges = blocks.start, blocks.stop
    return [slice(start, stop) for run in runs for start, stop in pairwise(
        [run.place.start, *(edge for edge in edges if run.place.start < edge < run.place.stop), run.place.stop])]


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
