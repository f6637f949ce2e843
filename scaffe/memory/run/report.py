"""A net's memory plan for people: a table, what it costs, and bytes in memory over an iteration as a chart."""

from __future__ import annotations

from scaffe.line_chart import Axis, Chart, Line, Linear
from scaffe.memory.amount import shown
from scaffe.memory.plan.cost_model import predict
from scaffe.memory.plan.plan import Choice, Do, resident_bytes
from scaffe.memory.run.forecast import Predicted


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
