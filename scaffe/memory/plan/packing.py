"""Offsets in one memory for arrays that are there at certain times: dynamic storage allocation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from scaffe.mapped_memory import rounded
from scaffe.memory.plan.plan import Action, Choice, Do, Plan, resident_bytes
from scaffe.memory.problem.iteration import Iteration
from scaffe.nets.arena import lowest

Intervals = Sequence[tuple[int, int]]

MOST_TRIALS, MOST_VISITS = 400, 2_000_000  # orders that are tried, and those times pairs of arrays that meet


def packed(lengths: Sequence[int], intervals: Sequence[Intervals], room: int) -> tuple[list[int], int]:
    """Place arrays one after another, each at the lowest offset at which it meets nobody: the largest first; if that
    takes too much, in orders in which one that ends last, or any other one, comes earlier (random descent, equal for
    equal inputs).

    Args:
        lengths: of the arrays, in bytes.
        intervals: of each, the steps in which it is there, first and last inclusive.
        room: in bytes: no better order is looked for once all fits.

    Returns:
        offsets, 0 for those that are never there, and the length of all.
    """
    there = [number for number, each in enumerate(intervals) if each]
    met = {i: [j for j in there if i != j and _meet(intervals[i], intervals[j])] for i in there}
    order, draw = sorted(there, key=lambda i: -lengths[i]), random.Random(0)
    offsets, n_bytes = lowest(order, lengths, met)
    for _ in range(min(MOST_TRIALS, MOST_VISITS // max(1, sum(map(len, met.values()))))):
        if n_bytes <= room:
            break
        last = next(i for i, number in enumerate(order) if offsets[number] + lengths[number] == n_bytes)
        chosen, trial = draw.choice((last, draw.randrange(len(order)))), list(order)
        trial.insert(draw.randint(0, chosen), trial.pop(chosen))
        found = lowest(trial, lengths, met)
        if found[1] <= n_bytes:
            order, (offsets, n_bytes) = trial, found
    return offsets, n_bytes


def _meet(mine: Intervals, others: Intervals) -> bool:
    """Whether one of these intervals and one of those have a step in common."""
    return any(first <= until and since <= final for first, final in mine for since, until in others)


Steps = list[tuple[int, int]]
STARTS, ENDS = (Do.FETCH, Do.AGAIN), (Do.GONE, Do.DROP)


def occupied(iteration: Iteration, plan: Plan) -> list[Steps]:
    """For each array the steps in which a plan has it in memory, first and last inclusive."""
    found: list[Steps] = [[] for _ in iteration.parts]
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
