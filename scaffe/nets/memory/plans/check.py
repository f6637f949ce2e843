"""Proof that a plan is right: every array is in memory when it is used, and the limit holds however long moves take."""

from __future__ import annotations

from scaffe.nets.memory.plans.iteration import Iteration, Part
from scaffe.nets.memory.plans.plan import Action, Choice, Do, Plan

ABSENT, VALID, LEAVING, COMING, SAVED = "absent", "there", "leaving", "coming", "in the slow memory"
FROM = {Do.SAVE: VALID, Do.GONE: LEAVING, Do.FETCH: SAVED, Do.HERE: COMING, Do.DROP: VALID}
TO = {Do.SAVE: LEAVING, Do.GONE: SAVED, Do.FETCH: COMING, Do.HERE: VALID, Do.DROP: ABSENT}


class WrongPlanError(Exception):
    """A plan that does not do what it should: a defect of whoever made it."""


def resident_bytes(iteration: Iteration, plan: Plan, n_bytes: int | None = None) -> list[int]:
    """Run a plan on paper, moves as slow as they may be.

    Args:
        iteration: the arrays and steps.
        plan: the plan.
        n_bytes: the limit; None: there is none.

    Returns:
        the most bytes that are in memory at once during each step.

    Raises:
        WrongPlanError: an array is used while it is not there, an action does not fit the state that its array is in,
            something is left at the end, or the limit is exceeded.
    """
    state = _at_the_start(iteration, plan)
    used = []
    for step, (before, after) in enumerate(zip(plan.before, plan.after, strict=True)):
        for action in before:
            if action.do is Do.FETCH and step in iteration.joined:
                raise WrongPlanError(f"step {step} runs with the one before, whose arrays are still there")
            _act(iteration, state, action, step)
        for number, part in enumerate(iteration.parts):
            _use(state, number, part, step)
        used.append(sum(part.n_bytes for part, now in zip(iteration.parts, state, strict=True)
                        if now not in (ABSENT, SAVED)))
        if n_bytes is not None and used[-1] > n_bytes:
            raise WrongPlanError(f"step {step}: {used[-1]:,} bytes in memory, the limit is {n_bytes:,}")
        for action in after:
            _act(iteration, state, action, step)
    if state != _at_the_start(iteration, plan):
        raise WrongPlanError("an array is left at the end of the iteration, or one that lasts is not where it was")
    return used


def _at_the_start(iteration: Iteration, plan: Plan) -> list[str]:
    """Where arrays are between two iterations."""
    return [ABSENT if not part.lasts else SAVED if choice is Choice.MOVE else VALID
            for part, choice in zip(iteration.parts, plan.choices, strict=True)]


def _use(state: list[str], number: int, part: Part, step: int) -> None:
    is_new = step in part.begins and not part.lasts
    if is_new and state[number] == ABSENT:
        state[number] = VALID
    if part.is_used_in(step) and state[number] != VALID:
        raise WrongPlanError(f"step {step} uses {part.name!r}, which is {state[number]}")


def _act(iteration: Iteration, state: list[str], action: Action, step: int) -> None:
    part = iteration.parts[action.part]
    if action.do is not Do.AGAIN:
        if state[action.part] != FROM[action.do]:
            raise WrongPlanError(f"step {step}: {action.do.value} of {part.name!r}, which is {state[action.part]}")
        state[action.part] = TO[action.do]
        if part.lasts and action.do is Do.DROP:
            if part.is_changed_by(step):
                raise WrongPlanError(f"step {step}: {part.name!r} is dropped, and has changed")
            state[action.part] = SAVED
        return
    missing = [iteration.parts[i].name for i in (part.again.inputs if part.again else ()) if state[i] != VALID]
    if part.again is None or missing or state[action.part] != ABSENT:
        raise WrongPlanError(f"step {step}: {part.name!r} cannot be computed again; not there: {missing}")
    state[action.part] = VALID
