"""Where recordings of passes are cut, so that a plan's moves lie between them: a pure rule."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from scaffe.nets.memory.plans.plan import Action, Do, Plan
from scaffe.nets.steps import Steps

BETWEEN = (Do.SAVE, Do.GONE, Do.FETCH, Do.HERE)  # the others are a device's own work, or none


class Cuts(NamedTuple):
    """Indices of layers at which stretches of layers begin.

    Attributes:
        forward, backward: for either way; a stretch runs backward from the layer before the next cut down to its own.
    """

    forward: frozenset[int]
    backward: frozenset[int]


def cuts(plan: Plan, forward: Sequence[range], backward: Sequence[range], updates: Collection[int] = (),
         steps: Steps | None = None) -> Cuts:
    """The cuts for a plan. A stretch begins with what stands before its first step that moves something, which is its
    first of all, or one of the first pass. It ends with what stands behind and between all others: these belong to its
    last pass, which has run by then.

    Args:
        plan: the plan.
        forward, backward: for each layer, those that run in one pass with it.
        updates: steps of backward behind which parameters are updated.
        steps: numbers of the steps, of which each layer has one in backward.
    """
    steps = steps or Steps(len(forward))
    ahead, back = set[int](), set[int]()
    for index, (group, block) in enumerate(zip(forward, backward, strict=True)):
        step = steps.backward(index)[0]
        if _moves(plan.before[index]):
            ahead.add(group.start)
        if _moves(plan.after[index]):
            ahead.add(group.stop)
        if step < len(plan.before) and _moves(plan.before[step]):
            back.add(block.stop if index == block[-1] else block.start)
        if step < len(plan.after) and (step in updates or _moves(plan.after[step])):
            back.add(block.start)
    return Cuts(frozenset(ahead), frozenset(back))


def _moves(actions: Sequence[Action]) -> bool:
    return any(action.do in BETWEEN for action in actions)
