"""What a net's training within a limit would take, from estimated times, and its table and chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaffe.errors import UserError
from scaffe.layers.normalization.lrn import Lrn
from scaffe.layers.vision.pooling import Pooling
from scaffe.line_chart import Axis, Chart, Line, Linear
from scaffe.mapped_memory import inner, rounded
from scaffe.memory.options import n_bytes, shown
from scaffe.memory.plan.cost_model import predict
from scaffe.memory.plan.greedy import least_bytes
from scaffe.memory.plan.layout import fitted_together, least_together
from scaffe.memory.plan.placements import PLACEMENTS
from scaffe.memory.plan.plan import Choice, Do, MemoryTooSmallError, Plan, resident_bytes
from scaffe.memory.problem.activations import keep_least, keep_little, keep_signs
from scaffe.memory.problem.costs import CORE, Speed, blobs_outside, estimated_seconds, fixed_bytes
from scaffe.memory.problem.device_bytes import bytes_beside_blobs, training_bytes
from scaffe.memory.problem.iteration import Bandwidth, Iteration
from scaffe.memory.problem.layer_groups import (
    Layer,
    bytes_of,
    come_by_rows,
    count_updates,
    large,
    layers_alone,
    pieces,
    update_steps,
)
from scaffe.memory.problem.state import (
    blocks_held,
    gradients_apart,
    gradients_held,
    history_held,
    history_part,
    parameters_apart,
    parameters_held,
)
from scaffe.memory.problem.tensors import Held, joined_steps, parts_of, planned_arrays
from scaffe.nets.fusion import fuse_layers
from scaffe.nets.net import Net
from scaffe.nets.steps import Steps

DISK = Bandwidth(1e9, 1e9)  # what a local disk is taken to do; training measures its own
LINK = Bandwidth(20e9, 20e9, at_once=True)  # likewise, what joins a GPU and its host: nearly 16 lanes of PCI Express 4
CARD = Speed(10e12, 1.5e12)  # likewise, a card: of an A100's order
DEVICES_READ_TOPS: dict[type, bool] = {Lrn: True, Pooling: False}  # in backward, unlike the host's layers
N_HISTORIES = 1  # of the update rule: SGD's
NOWHERE = np.empty(0, np.uint8)


@dataclass(frozen=True)
class Predicted:
    """The plan of a net within a limit, from estimated times.

    Attributes:
        whole: bytes that training takes without a limit.
        limit: bytes that it may take.
        fixed: bytes of it that never move.
        least: bytes of the least limit.
        names: of the layers.
        steps: their numbers.
        iteration, plan: see there.
        bandwidth: of the slow memory, as assumed.
    """

    whole: int
    limit: int
    fixed: int
    least: int
    names: tuple[str, ...]
    steps: Steps
    iteration: Iteration
    plan: Plan
    bandwidth: Bandwidth


def predicted(net: Net, memory: str, placement: str) -> Predicted:
    """Plan a net's training on one rank and one thread. The net is changed, and not to be trained.

    Args:
        net: a built training net.
        memory: the limit, "2GB" or "40%".
        placement: a name of ``PLACEMENTS``.

    Raises:
        UserError: the limit is too low.
    """
    planned = planned_arrays(net)
    histories = N_HISTORIES * net.params.n_elems * net.params.dtype.itemsize
    whole = fixed_bytes(net, planned) + histories + sum(each.part.n_bytes for each in planned)
    limit = n_bytes(memory, whole)
    if limit < whole:
        keep_little(net, limit, lambda: least_to_train(net, fixed_bytes(net, planned_arrays(net)) + histories))
    held, planned = _held(net), planned_arrays(net)
    fixed = fixed_bytes(net, planned) + histories - _taken_bytes(held)
    iteration = Iteration(parts_of(net, planned, held), estimated_seconds(net, CORE), joined=joined_steps(net))
    least = fixed + least_bytes(iteration)
    _check(memory, limit, least)
    try:
        plan = PLACEMENTS[placement](iteration, limit - fixed, DISK)
    except MemoryTooSmallError as error:
        raise UserError(f"-memory {memory} with -placement {placement}: {error}") from error
    steps = net.steps
    keep_least(net)
    least = min(least, least_to_train(net, fixed_bytes(net, planned_arrays(net)) + histories))
    return Predicted(whole, limit, fixed, least, _names(net), steps, iteration, plan, DISK)


def least_to_train(net: Net, taken: int, alone: bool = True) -> int:
    """The bytes in which one rank trains a net at least, as it is.

    Args:
        net: a built training net.
        taken: bytes beside its blobs, parameters and all that goes with them among these.
        alone: whether nobody else needs its gradients.
    """
    held, planned = _held(net, alone), planned_arrays(net)
    iteration = Iteration(parts_of(net, planned, held), estimated_seconds(net, CORE), joined=joined_steps(net))
    return taken - _taken_bytes(held) + least_bytes(iteration)


def predicted_on_gpu(net: Net, memory: str, placement: str) -> Predicted:
    """As ``predicted``, on a GPU with host memory below its own. What convolutions work in is not counted."""
    fuse_layers(net, backward=True)
    _read_as_devices(net)
    whole = training_bytes(net, N_HISTORIES)
    limit = n_bytes(memory, whole)
    if limit < whole:
        keep_signs(net)
    fixed, iteration = _on_card(net)
    least = fixed + least_together(iteration)
    _check(memory, limit, least)
    try:
        plan, _ = fitted_together(iteration, PLACEMENTS[placement], limit - fixed, LINK)
    except MemoryTooSmallError as error:
        raise UserError(f"-memory {memory} with -placement {placement}: {error}") from error
    steps = net.steps
    if limit >= whole:
        keep_signs(net)
        other_fixed, other = _on_card(net)
        least = min(least, other_fixed + least_together(other))
    return Predicted(whole, limit, fixed, least, _names(net), steps, iteration, plan, LINK)


def _on_card(net: Net) -> tuple[int, Iteration]:
    """What no plan moves, in bytes, and what it is made from."""
    streamed = _streamed(net, True, spreads=False)
    held, planned = _held_apart(net, streamed), planned_arrays(net)
    fixed = (bytes_beside_blobs(net, N_HISTORIES) + blobs_outside(net, planned, True)
             - (2 + N_HISTORIES) * sum(bytes_of(net, layer) for layer in streamed))
    seconds = list(estimated_seconds(net, CARD))
    for layer in streamed:
        seconds[update_steps(net, layer)[0]] += 3 * N_HISTORIES * bytes_of(net, layer) / CARD.n_bytes
    return fixed, Iteration(parts_of(net, planned, held), tuple(seconds), joined=joined_steps(net))


def _read_as_devices(net: Net) -> None:
    """Have layers read in backward what they do on a device, of their tops' data."""
    for node in net.nodes:
        node.layer.reads_tops = DEVICES_READ_TOPS.get(type(node.layer), node.layer.reads_tops)


def _taken_bytes(held: Sequence[Held]) -> int:
    """What a net takes of the arrays that may leave."""
    return sum(each.part.n_bytes + each.spared for each in held)


def _check(memory: str, limit: int, least: int) -> None:
    if limit < least:
        raise UserError(f"-memory {memory}: {limit:,} bytes are too few; this net trains in {least:,} at least")


def _names(net: Net) -> tuple[str, ...]:
    return tuple(node.name for node in net.nodes)


def _held(net: Net, alone: bool = True) -> list[Held]:
    """Parameters, gradients and histories of large layers, as one rank trains them, or one of several."""
    streamed, found = _streamed(net, alone), list[Held]()
    for layer in streamed:
        found += parameters_held(net, layer)
        if layer.first_layer not in net.steps.behind:
            found.append(gradients_held(net, layer))
        for piece, step in zip(pieces(net, layer), update_steps(net, layer), strict=False):
            memory = inner(net.params.data[piece].view(np.uint8))
            found += [history_held(net, layer, memory, step)] * N_HISTORIES
    return found + blocks_held(net, streamed)


def _held_apart(net: Net, streamed: Sequence[Layer]) -> list[Held]:
    """The same on a GPU, as one rank trains these layers."""
    found = [parameters_apart(net, layer, NOWHERE) for layer in streamed] + gradients_apart(net, streamed)
    for layer in streamed:
        for piece, step in zip(pieces(net, layer), update_steps(net, layer), strict=False):
            n_bytes = rounded(net.params.data[piece].nbytes)
            found += [Held(NOWHERE, history_part(net, layer, n_bytes, step), [])] * N_HISTORIES
    return found


def _streamed(net: Net, alone: bool, spreads: bool = True) -> list[Layer]:
    """The layers whose parameters may leave; the net's steps have their updates from now on. ``alone``: whether nobody
    else reads their gradients; ``spreads``: see ``come_by_rows``."""
    found = large(net, layers_alone(net))
    come_by_rows(net, found if alone else (), spreads)
    count_updates(net, {layer.first_layer: len(pieces(net, layer)) for layer in found})
    return found


def lines(found: Predicted) -> list[str]:
    """The table of the arrays that lie idle at times, and what the plan costs."""
    rows = [("array", "bytes", "", "idle after", "until backward of")]
    rows += [(part.name, f"{part.n_bytes:,}", choice.value, found.names[part.forward[-1]] if part.forward else "",
              _needed_by(found, part.backward[0]))
             for part, choice in zip(found.iteration.parts, found.plan.choices, strict=True)
             if part.may_leave or part.lasts]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    align = (str.ljust, str.rjust, str.ljust, str.ljust, str.ljust)
    table = ["  ".join(put(cell, width) for put, cell, width in zip(align, row, widths, strict=True)).rstrip()
             for row in rows]
    cost, most = predict(found.iteration, found.plan, found.bandwidth), max(_resident(found), default=0)
    counts = ", ".join(f"{choice.value} {found.plan.choices.count(choice)}" for choice in (Choice.MOVE, Choice.AGAIN))
    return [*table,
            f"training: {shown(found.whole)} without a limit, {shown(most)} at most within {shown(found.limit)}, of "
            f"which {shown(found.fixed)} do not move; least {shown(found.least)}",
            f"{counts}: {shown(cost.saved)} out and back an iteration at {shown(found.bandwidth.out)}/s, "
            f"{cost.waited:.3g} s of it not hidden, "
            f"{cost.again:.3g} s computed again, predicted time {cost.slowdown:.2f}x of {cost.compute:.3g} s"]


def chart(found: Predicted) -> Chart:
    """Bytes in memory over the steps of an iteration, with the limit (as in GeePS, Fig. 10)."""
    steps = range(len(found.iteration.seconds))
    most = {"without a limit": [found.whole] * len(steps), "limit": [found.limit] * len(steps),
            "in memory": _resident(found), "does not move": [found.fixed] * len(steps)}
    curves = [Line(name, [(float(step), y / 1e9) for step, y in zip(steps, values, strict=True)])
              for name, values in most.items()]
    moved = shown(sum(found.iteration.parts[i].n_bytes for i in found.plan.parts_of(Do.SAVE)))
    return Chart(f"Memory of one iteration; {moved} move out and back", curves,
                 x=Axis(scale=Linear(), label="step: layers forward, then backward"),
                 y=Axis(scale=Linear(), label="GB"))


def _resident(found: Predicted) -> list[int]:
    return [found.fixed + n for n in resident_bytes(found.iteration, found.plan, found.limit - found.fixed)]


def _needed_by(found: Predicted, step: int) -> str:
    """The layer whose backward a step is, or what comes behind all of them."""
    layer = found.steps.layer_of(step)
    return found.names[layer] if layer >= 0 else "(update)"
