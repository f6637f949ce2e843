"""What training within a limit would take, from estimated times, on the host or on a GPU; as a table and as a chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scaffe.errors import UserError
from scaffe.layers.vision.pooling import Pooling
from scaffe.line_chart import Axis, Chart, Line, Linear
from scaffe.mapped_memory import inner, rounded
from scaffe.memory.options import n_bytes, shown
from scaffe.memory.plan.greedy import least_bytes
from scaffe.memory.plan.layout import Lay, fitted_together, least_together
from scaffe.memory.plan.paging import laid_out
from scaffe.memory.plan.placements import PLACEMENTS, Placement
from scaffe.memory.plan.plan import Choice, Do, MemoryTooSmallError, Plan, resident_bytes
from scaffe.memory.plan.schedule import predict
from scaffe.memory.problem import layer_groups
from scaffe.memory.problem import state as state_tensors
from scaffe.memory.problem.activations import minimize_saved_activations, note_passed_diffs, reduce_saved_activations
from scaffe.memory.problem.cards import DEFAULT, CardSpeeds, speeds_of
from scaffe.memory.problem.costs import CORE, Speed, estimated_seconds, unmovable_bytes
from scaffe.memory.problem.device_bytes import training_bytes, unmovable_on_device, update_bytes
from scaffe.memory.problem.division import save_less_on_device
from scaffe.memory.problem.iteration import Bandwidth, Iteration
from scaffe.memory.problem.scratch import Workspaces, estimated_workspaces, taken_bytes, waiting_bytes
from scaffe.memory.problem.tensors import StateTensor, activation_tensors, iteration_of
from scaffe.nets.fusion import fuse_layers
from scaffe.nets.net import Net
from scaffe.nets.steps import Steps

DISK = Bandwidth(1e9, 1e9)  # what a local disk is taken to do; training measures its own
DEVICES_READ_TOPS: dict[type, bool] = {Pooling: False}  # in backward, unlike the host's layers
N_HISTORIES = 1  # of the update rule: SGD's
PAGE_BYTES = 2 << 20  # of such cards, and later ones
NOWHERE = np.empty(0, np.uint8)


@dataclass(frozen=True)
class Forecast:
    """The plan of a net within a limit, from estimated times.

    Attributes:
        bandwidth: of the backing store, as assumed.
        source: whose figures the times are estimated from; empty if it need not be said.
    """

    whole: int
    limit: int
    unmovable: int
    least: int
    names: list[str]
    steps: Steps
    iteration: Iteration
    plan: Plan
    bandwidth: Bandwidth
    source: str = ""


def forecast(net: Net, memory: str, placement: str) -> Forecast:
    """Plan a net's training on one rank and one thread. The net is changed, and cannot be trained afterwards. Raises
    UserError if the limit is too low."""
    activations = activation_tensors(net)
    histories = N_HISTORIES * net.params.n_elems * net.params.dtype.itemsize
    whole = unmovable_bytes(net, activations) + histories + sum(each.tensor.n_bytes for each in activations)
    limit = n_bytes(memory, whole)
    if limit < whole:
        reduce_saved_activations(
            net, limit, lambda: least_to_train(net, unmovable_bytes(net, activation_tensors(net)) + histories))
    state, activations = _state(net), activation_tensors(net)
    unmovable = unmovable_bytes(net, activations) + histories - _taken_bytes(state)
    iteration = iteration_of(net, activations, state, estimated_seconds(net, CORE))
    least = unmovable + least_bytes(iteration)
    _refuse_below(least, unmovable, memory, limit)
    plan = _plan(memory, placement, lambda make: make(iteration, limit - unmovable, DISK))
    steps = net.steps
    minimize_saved_activations(net)
    least = min(least, least_to_train(net, unmovable_bytes(net, activation_tensors(net)) + histories))
    return Forecast(whole, limit, unmovable, least, [node.name for node in net.nodes], steps, iteration, plan, DISK)


def least_to_train(net: Net, taken: int, alone: bool = True) -> int:
    """The least bytes in which one rank trains a net, as it is.

    Args:
        taken: bytes of everything but its blobs, with parameters, gradients and histories.
        alone: whether nobody else needs its gradients.
    """
    state, activations = _state(net, alone), activation_tensors(net)
    iteration = iteration_of(net, activations, state, estimated_seconds(net, CORE))
    return taken - _taken_bytes(state) + least_bytes(iteration)


def forecast_on_gpu(net: Net, memory: str, placement: str, card: CardSpeeds | None = None,
                    works: Workspaces | None = None) -> Forecast:
    """As ``forecast``, on a GPU with host memory as its backing store.

    Args:
        card: by default that of ``cards.DEFAULT``.
        works: what its passes work in; None: as much as is estimated for an H100 or an H200.
    """
    card, works = card or speeds_of(DEFAULT, net.context.dtype), works or estimated_workspaces()
    fuse_layers(net, backward=True)
    for node in net.nodes:
        node.layer.reads_tops = DEVICES_READ_TOPS.get(type(node.layer), node.layer.reads_tops)
    whole = training_bytes(net, N_HISTORIES) + update_bytes(net) + taken_bytes(net, works) + waiting_bytes(net)
    limit = n_bytes(memory, whole)
    note_passed_diffs(net, in_splits=True)
    if limit < whole:
        save_less_on_device(net)
    unmovable, iteration, lay = _on_card(net, card.speed, works)
    least = unmovable + least_together(iteration, lay)
    _refuse_below(least, unmovable, memory, limit)
    plan = _plan(memory, placement,
                 lambda make: fitted_together(iteration, make, limit - unmovable, card.bandwidth, lay)[0])
    steps = net.steps
    if limit >= whole:
        save_less_on_device(net)
        other_unmovable, other, lay = _on_card(net, card.speed, works)
        least = min(least, other_unmovable + least_together(other, lay))
    return Forecast(whole, limit, unmovable, least, [node.name for node in net.nodes], steps, iteration, plan,
                    card.bandwidth, card.source)


def _on_card(net: Net, speed: Speed, works: Workspaces) -> tuple[int, Iteration, Lay]:
    """Bytes that no plan moves, what plans are made from, and how tensors are laid out."""
    large = _large_layers(net, True, spreads=False)
    state, activations = _state_on_device(net, large), activation_tensors(net)
    unmovable = (unmovable_on_device(net, activations, taken_bytes(net, works))
                 + N_HISTORIES * net.params.n_elems * net.params.dtype.itemsize + update_bytes(net)
                 - (2 + N_HISTORIES) * sum(layer_groups.bytes_of(net, layer) for layer in large))
    seconds = list(estimated_seconds(net, speed))
    for layer in large:
        n_bytes = 3 * N_HISTORIES * layer_groups.bytes_of(net, layer)
        seconds[layer_groups.update_steps(net, layer)[0]] += n_bytes / speed.n_bytes
    iteration = iteration_of(net, activations, state, seconds, is_recorded=True)
    return unmovable, iteration, laid_out(iteration, PAGE_BYTES, len(activations))


def _taken_bytes(state: Sequence[StateTensor]) -> int:
    return sum(each.tensor.n_bytes + each.never_materialized for each in state)


def _refuse_below(least: int, unmovable: int, memory: str, limit: int) -> None:
    if limit < least:
        raise UserError(f"-memory {memory}: {limit:,} bytes are too few; this net trains in {least:,} at least, of "
                        f"which {unmovable:,} cannot move")


def _plan(memory: str, placement: str, made: Callable[[Placement], Plan]) -> Plan:
    try:
        return made(PLACEMENTS[placement])
    except MemoryTooSmallError as error:
        raise UserError(f"-memory {memory} with -placement {placement}: {error}") from error


def _state(net: Net, alone: bool = True) -> list[StateTensor]:
    """Parameters, gradients and histories of large layers, as one rank trains them alone, or one of several."""
    large, found = _large_layers(net, alone), list[StateTensor]()
    for layer in large:
        found += state_tensors.parameter_tensors(net, layer)
        if layer.first_layer not in net.steps.behind:
            found.append(state_tensors.gradient_tensor(net, layer))
        for chunk, step in zip(layer_groups.chunks(net, layer), layer_groups.update_steps(net, layer), strict=False):
            memory = inner(net.params.data[chunk].view(np.uint8))
            found += [state_tensors.history_tensor(net, layer, memory, step)] * N_HISTORIES
    return found + state_tensors.block_gradient_tensors(net, large)


def _state_on_device(net: Net, large: Sequence[layer_groups.OneLayer]) -> list[StateTensor]:
    """The same on a GPU, where one rank trains these layers alone."""
    found = [state_tensors.device_parameter_tensor(net, layer, NOWHERE) for layer in large]
    found += state_tensors.device_gradient_tensors(net, large)
    for layer in large:
        for chunk, step in zip(layer_groups.chunks(net, layer), layer_groups.update_steps(net, layer), strict=False):
            n_bytes = rounded(net.params.data[chunk].nbytes)
            found += [StateTensor(NOWHERE, state_tensors.planned_history(net, layer, n_bytes, step), [])] * N_HISTORIES
    return found


def _large_layers(net: Net, alone: bool, spreads: bool = True) -> list[layer_groups.OneLayer]:
    """The layers whose parameters may be offloaded; the net's steps get their updates. ``alone``: whether nobody else
    reads their gradients."""
    found = layer_groups.large_groups(net, layer_groups.single_layers(net))
    layer_groups.compute_by_rows(net, found if alone else (), spreads)
    layer_groups.count_updates(net, {layer.first_layer: len(layer_groups.chunks(net, layer)) for layer in found})
    return found


def lines(found: Forecast) -> list[str]:
    """The table of the tensors that lie idle at times, and what the plan costs."""
    rows = [("array", "bytes", "", "idle after", "until backward of")]
    rows += [(tensor.name, f"{tensor.n_bytes:,}", choice.value,
              found.names[tensor.forward[-1]] if tensor.forward else "", _needed_by(found, tensor.backward[0]))
             for tensor, choice in zip(found.iteration.tensors, found.plan.choices, strict=True)
             if tensor.may_be_offloaded or tensor.is_persistent]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    align = (str.ljust, str.rjust, str.ljust, str.ljust, str.ljust)
    table = ["  ".join(put(cell, width) for put, cell, width in zip(align, row, widths, strict=True)).rstrip()
             for row in rows]
    cost, most = predict(found.iteration, found.plan, found.bandwidth), max(_resident(found), default=0)
    counts = ", ".join(f"{choice.value} {found.plan.choices.count(choice)}"
                       for choice in (Choice.MOVE, Choice.RECOMPUTE))
    return [*table,
            f"training: {shown(found.whole)} without a limit, {shown(most)} at most within {shown(found.limit)}, of "
            f"which {shown(found.unmovable)} do not move; least {shown(found.least)}",
            f"{counts}: {shown(cost.offloaded)} out and back an iteration at {shown(found.bandwidth.out)}/s, "
            f"{cost.waited:.3g} s of it not hidden, "
            f"{cost.recompute:.3g} s computed again, predicted time {cost.slowdown:.2f}x of {cost.compute:.3g} s"
            + (f" ({found.source})" if found.source else "")]


def chart(found: Forecast) -> Chart:
    """Bytes in memory over the steps of an iteration, with the limit (as in GeePS, Fig. 10)."""
    steps = range(len(found.iteration.seconds))
    most = {"without a limit": [found.whole] * len(steps), "limit": [found.limit] * len(steps),
            "in memory": _resident(found), "does not move": [found.unmovable] * len(steps)}
    curves = [Line(name, [(float(step), y / 1e9) for step, y in zip(steps, values, strict=True)])
              for name, values in most.items()]
    moved = shown(sum(found.iteration.tensors[i].n_bytes for i in found.plan.tensors_of(Do.OFFLOAD)))
    return Chart(f"Memory of one iteration; {moved} move out and back", curves,
                 x=Axis(scale=Linear(), label="step: layers forward, then backward"),
                 y=Axis(scale=Linear(), label="GB"))


def _resident(found: Forecast) -> list[int]:
    return [found.unmovable + n for n in resident_bytes(found.iteration, found.plan, found.limit - found.unmovable)]


def _needed_by(found: Forecast, step: int) -> str:
    """The layer whose backward a step is, or what comes behind all of them."""
    layer = found.steps.layer_of(step)
    return found.names[layer] if layer >= 0 else "(update)"
