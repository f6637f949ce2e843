"""A memory plan: keep, offload or recompute each tensor, as actions before and after each step; and a check of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from scaffe.errors import ExpectedError
from scaffe.memory.problem.iteration import Iteration, Tensor


class MemoryTooSmallError(ExpectedError):
    """No plan keeps within the limit."""


class Choice(Enum):
    """Where a tensor's contents are between its last use in forward and its first in backward.

    A persistent tensor that is not kept is offloaded between iterations too, and between backward and a late update.
    While a plan is searched for, BEHIND keeps such a tensor in memory between forward and backward, LATE between
    backward and the update, and BETWEEN in both intervals. In the finished plan all three are MOVE.
    """

    KEEP = "keep"
    MOVE = "move"
    RECOMPUTE = "recompute"
    BEHIND = "move behind backward"
    LATE = "move, but not between backward and a late update"
    BETWEEN = "move between iterations"


class Do(Enum):
    """What is done with a tensor before or after a step.

    OFFLOAD begins to write it to the backing store; OFFLOADED waits until it is written, and frees its memory; FETCH
    begins to read it back; FETCHED waits until it is read; RECOMPUTE computes it once more; DROP frees its memory,
    since nobody needs its contents.
    """

    OFFLOAD = "offload"
    OFFLOADED = "offloaded"
    FETCH = "fetch"
    FETCHED = "fetched"
    RECOMPUTE = "recompute"
    DROP = "drop"


@dataclass(frozen=True)
class Action:
    """Something to do with one tensor, by its number."""

    do: Do
    tensor: int


@dataclass(frozen=True)
class Plan:
    """What is done in one iteration.

    Attributes:
        choices: for each tensor; KEEP for those whose contents never lie idle.
        before, after: for each step, the actions in their order.
        wanted: the choices that the plan was made for, as they were given.
    """

    choices: tuple[Choice, ...]
    before: tuple[tuple[Action, ...], ...]
    after: tuple[tuple[Action, ...], ...]
    wanted: tuple[Choice, ...] = ()

    def tensors_of(self, do: Do) -> list[int]:
        return [action.tensor for step in (*self.before, *self.after) for action in step if action.do is do]


ABSENT, VALID, OFFLOADING, FETCHING = "absent", "there", "being offloaded", "being fetched"
IN_STORE = "in the backing store"
FROM = {Do.OFFLOAD: VALID, Do.OFFLOADED: OFFLOADING, Do.FETCH: IN_STORE, Do.FETCHED: FETCHING, Do.DROP: VALID}
IN_MEMORY = (VALID, OFFLOADING, FETCHING)
TO = {Do.OFFLOAD: OFFLOADING, Do.OFFLOADED: IN_STORE, Do.FETCH: FETCHING, Do.FETCHED: VALID, Do.DROP: ABSENT}


class WrongPlanError(Exception):
    """A plan that does not do what it should: a defect of whoever made it."""


def resident_bytes(iteration: Iteration, plan: Plan, n_bytes: int | None = None) -> list[int]:
    """Check a plan by running it on paper, with moves that take as long as they may. Returns for each step, the most
    bytes in memory at once. Raises WrongPlanError if a step uses a tensor that is not in memory, an action does not fit
    its tensor's state, a tensor is left in memory at the end, or the limit is exceeded.

    Args:
        n_bytes: the limit; None if there is none.
    """
    state = _at_the_start(iteration, plan)
    now = sum(tensor.n_bytes for tensor, each in zip(iteration.tensors, state, strict=True) if each in IN_MEMORY)
    used = []

    def change(number: int, new: str) -> None:
        nonlocal now
        now += iteration.tensors[number].n_bytes * ((new in IN_MEMORY) - (state[number] in IN_MEMORY))
        state[number] = new

    for step, (before, after) in enumerate(zip(plan.before, plan.after, strict=True)):
        for action in before:
            if action.do is Do.FETCH and step in iteration.joined:
                raise WrongPlanError(f"step {step} runs with the one before, whose arrays are still there")
            change(action.tensor, _acted(iteration, state, action, step))
        for number in iteration.used_in[step]:
            change(number, _used(iteration.tensors[number], state[number], step))
        used.append(now)
        if n_bytes is not None and now > n_bytes:
            raise WrongPlanError(f"step {step}: {now:,} bytes in memory, the limit is {n_bytes:,}")
        for action in after:
            change(action.tensor, _acted(iteration, state, action, step))
    if state != _at_the_start(iteration, plan):
        raise WrongPlanError("an array is left at the end of the iteration, or one that lasts is not where it was")
    return used


def _at_the_start(iteration: Iteration, plan: Plan) -> list[str]:
    return [ABSENT if not tensor.is_persistent else IN_STORE if choice is Choice.MOVE else VALID
            for tensor, choice in zip(iteration.tensors, plan.choices, strict=True)]


def _used(tensor: Tensor, state: str, step: int) -> str:
    begins = state == ABSENT and step in tensor.begins and not tensor.is_persistent
    if state != VALID and not begins:
        raise WrongPlanError(f"step {step} uses {tensor.name!r}, which is {state}")
    return VALID


def _acted(iteration: Iteration, state: Sequence[str], action: Action, step: int) -> str:
    tensor, now = iteration.tensors[action.tensor], state[action.tensor]
    if action.do is not Do.RECOMPUTE:
        if now != FROM[action.do]:
            raise WrongPlanError(f"step {step}: {action.do.value} of {tensor.name!r}, which is {now}")
        if tensor.is_persistent and action.do is Do.DROP:
            if tensor.is_changed_by(step):
                raise WrongPlanError(f"step {step}: {tensor.name!r} is dropped, and has changed")
            return IN_STORE
        return TO[action.do]
    inputs = tensor.recompute.inputs if tensor.recompute else ()
    missing = [iteration.tensors[i].name for i in inputs if state[i] != VALID]
    if tensor.recompute is None or missing or now != ABSENT:
        raise WrongPlanError(f"step {step}: {tensor.name!r} cannot be computed again; not there: {missing}")
    return VALID
