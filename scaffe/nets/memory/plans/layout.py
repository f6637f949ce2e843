"""Where arrays lie so that pages need not be given back: two that are never in memory together may overlap."""

from __future__ import annotations

from dataclasses import dataclass

from scaffe.nets.memory.plans.check import resident_bytes
from scaffe.nets.memory.plans.iteration import Iteration
from scaffe.nets.memory.plans.packing import packed
from scaffe.nets.memory.plans.plan import Action, Choice, Do, Plan
from scaffe.nets.memory.tier.mapping import rounded

Intervals = list[tuple[int, int]]
STARTS, ENDS = (Do.FETCH, Do.AGAIN), (Do.GONE, Do.DROP)


def occupied(iteration: Iteration, plan: Plan) -> list[Intervals]:
    """For each array the steps in which a plan has it in memory, first and last inclusive."""
    found: list[Intervals] = [[] for _ in iteration.parts]
    since: dict[int, int] = {}

    def act(actions: tuple[Action, ...], begins: int, ends: int) -> None:
        for action in actions:
            if action.do in STARTS:
                since[action.part] = begins
            elif action.do in ENDS and action.part in since:
                found[action.part].append((since.pop(action.part), ends))

    for step, (before, after) in enumerate(zip(plan.before, plan.after, strict=True)):
        act(before, step, step - 1)
        for number in iteration.used_in[step]:
            part = iteration.parts[number]
            if step in part.begins and not part.lasts:
                since.setdefault(number, step)
        act(after, step + 1, step)
    always = [(0, len(iteration.seconds) - 1)]
    return [always if part.lasts and choice is not Choice.MOVE else intervals
            for part, choice, intervals in zip(iteration.parts, plan.choices, found, strict=True)]


@dataclass(frozen=True)
class Layout:
    """Where arrays lie.

    Attributes:
        offsets: of the first ones in one memory that is always there, in bytes; None: each has addresses of its own.
        n_bytes: the most that all arrays take.
        others_bytes: the most that those take which are not in that memory.
    """

    offsets: list[int] | None
    n_bytes: int
    others_bytes: int


def apart(iteration: Iteration, plan: Plan) -> Layout:
    """Every array with addresses of its own."""
    most = max(resident_bytes(iteration, plan), default=0)
    return Layout(None, most, most)


def arrangement(iteration: Iteration, plan: Plan, n_arranged: int, n_bytes: int = 0) -> Layout:
    """Arrays in one memory that is always there.

    Args:
        iteration, plan: the arrays, and what is done with them.
        n_arranged: so many arrays, the first, have no memory of their own.
        n_bytes: for all arrays: no shorter layout is looked for.
    """
    intervals = occupied(iteration, plan)[:n_arranged]
    others = resident_bytes(iteration, plan)
    for part, spans in zip(iteration.parts, intervals, strict=False):
        for first, final in spans:
            for step in range(first, final + 1):
                others[step] -= part.n_bytes
    most = max(others, default=0)
    offsets, length = packed([part.n_bytes for part in iteration.parts[:n_arranged]], intervals, n_bytes - most)
    return Layout(offsets, rounded(length) + most, most)
