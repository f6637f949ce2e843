"""A net's memory plan for people: a table, what it costs, and bytes in memory over an iteration as a chart."""

from __future__ import annotations

from dataclasses import dataclass

from scaffe.errors import UserError
from scaffe.line_chart import Axis, Chart, Line, Linear
from scaffe.nets.fusion import keep_bottoms
from scaffe.nets.memory.amount import n_bytes, shown
from scaffe.nets.memory.fixed import fixed_bytes
from scaffe.nets.memory.parts import Held, joined_steps, parts_of, planned_arrays
from scaffe.nets.memory.plans.check import resident_bytes
from scaffe.nets.memory.plans.costs import estimated_seconds
from scaffe.nets.memory.plans.iteration import Bandwidth, Iteration
from scaffe.nets.memory.plans.needs import least_bytes
from scaffe.nets.memory.plans.placements import PLACEMENTS
from scaffe.nets.memory.plans.plan import Choice, Do, MemoryTooSmallError, Plan
from scaffe.nets.memory.plans.predict import predict
from scaffe.nets.memory.state import history_held, large, layers_alone, parameters_held, update_step
from scaffe.nets.net import Net

DISK = Bandwidth(1e9, 1e9)  # what a local disk is taken to do; training measures its own
N_HISTORIES = 1  # of the update rule: SGD's


@dataclass(frozen=True)
class Predicted:
    """The plan of a net within a limit, from estimated times.

    Attributes:
        whole: bytes that training takes without a limit.
        limit: bytes that it may take.
        fixed: bytes of it that never move.
        names: of the layers.
        iteration, plan: see there.
    """

    whole: int
    limit: int
    fixed: int
    names: tuple[str, ...]
    iteration: Iteration
    plan: Plan


def predicted(net: Net, memory: str, placement: str) -> Predicted:
    """Plan a net's training on one rank and one thread; the net changes as training would change it.

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
        keep_bottoms(net)
        planned = planned_arrays(net)
    held = _held(net)
    fixed = fixed_bytes(net, planned) + histories - sum(each.part.n_bytes for each in held)
    iteration = Iteration(parts_of(net, planned, held), estimated_seconds(net), joined=joined_steps(net))
    if limit < fixed + least_bytes(iteration):
        raise UserError(f"-memory {memory}: {limit:,} bytes are too few; this net trains in "
                        f"{fixed + least_bytes(iteration):,} at least")
    try:
        plan = PLACEMENTS[placement](iteration, limit - fixed, DISK)
    except MemoryTooSmallError as error:
        raise UserError(f"-memory {memory} with -placement {placement}: {error}") from error
    return Predicted(whole, limit, fixed, tuple(node.name for node in net.nodes), iteration, plan)


def _held(net: Net) -> list[Held]:
    """Parameters, gradients and histories of large layers, as one rank trains them."""
    found = []
    for layer in large(net, layers_alone(net)):
        parameters, gradients = parameters_held(net, layer)
        histories = [history_held(net, layer, parameters.memory, update_step(net, layer))] * N_HISTORIES
        found += [parameters, gradients, *histories]
    return found


def lines(found: Predicted) -> list[str]:
    """The table of the arrays that lie idle at times, and what the plan costs."""
    rows = [("array", "bytes", "", "idle after", "until backward of")]
    rows += [(part.name, f"{part.n_bytes:,}", choice.value, found.names[part.forward[-1]] if part.forward else "",
              found.names[2 * len(found.names) - 1 - part.backward[0]])
             for part, choice in zip(found.iteration.parts, found.plan.choices, strict=True)
             if part.may_leave or part.lasts]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    align = (str.ljust, str.rjust, str.ljust, str.ljust, str.ljust)
    table = ["  ".join(put(cell, width) for put, cell, width in zip(align, row, widths, strict=True)).rstrip()
             for row in rows]
    cost, most = predict(found.iteration, found.plan, DISK), max(_resident(found), default=0)
    counts = ", ".join(f"{choice.value} {found.plan.choices.count(choice)}" for choice in (Choice.MOVE, Choice.AGAIN))
    return [*table,
            f"training: {shown(found.whole)} without a limit, {shown(most)} at most within {shown(found.limit)}, of "
            f"which {shown(found.fixed)} do not move; least {shown(found.fixed + least_bytes(found.iteration))}",
            f"{counts}: {shown(cost.saved)} out and back an iteration at 1 GB/s, {cost.waited:.3g} s of it not hidden, "
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
