"""From choices to a plan: when arrays that move begin to leave and to come back, and where steps wait for them.

An array counts as in memory until the step before which its GONE stands, and again from the step before which its
FETCH stands. So a plan keeps within its limit however long the moves take; their estimated times only decide how much
of the free memory is lent to arrays on their way, so that steps wait for them less.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.nets.memory.iteration import Bandwidth, Iteration
from scaffe.nets.memory.needs import Needs, needs
from scaffe.nets.memory.plan import Action, Choice, Do, MemoryTooSmallError, Plan

MARGIN = 1.25  # moves may take so much longer than estimated before a step waits


def schedule(iteration: Iteration, choices: Sequence[Choice], n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """The plan that carries out these choices within a limit.

    Args:
        iteration: the arrays and steps.
        choices: one for each array.
        n_bytes: the limit.
        bandwidth: of the slow memory.

    Raises:
        MemoryTooSmallError: the choices need more in some step.
    """
    need = needs(iteration, choices)
    if max(need.n_bytes, default=0) > n_bytes:
        raise MemoryTooSmallError(f"these choices need {max(need.n_bytes):,} bytes, the limit is {n_bytes:,}")
    free = [n_bytes - used for used in need.n_bytes]
    moved = [number for number in need.back_at if choices[number] is Choice.MOVE]
    gone = _gone_before(iteration, moved, need, free, bandwidth)
    back = _fetch_before(iteration, moved, need, free, gone, bandwidth)
    return _actions(iteration, choices, need, gone, back)


def _gone_before(iteration: Iteration, moved: Sequence[int], need: Needs, free: list[int],
                 bandwidth: Bandwidth) -> dict[int, int]:
    """For each array that moves: the step before which its memory must be free, as late as it is written by then."""
    starts, done, found = iteration.starts(), 0.0, {}
    for number in sorted(moved, key=lambda i: need.spans[i][0][1]):
        part, left = iteration.parts[number], need.spans[number][0][1] + 1
        done = max(done, starts[left]) + MARGIN * part.n_bytes / bandwidth.out
        step = left
        while step < need.back_at[number] and starts[step] < done and free[step] >= part.n_bytes:
            free[step] -= part.n_bytes
            step += 1
        found[number] = step
    return found


def _fetch_before(iteration: Iteration, moved: Sequence[int], need: Needs, free: list[int], gone: dict[int, int],
                  bandwidth: Bandwidth) -> dict[int, int]:
    """For each array that moves: the step before which it begins to be read, early enough for its first use."""
    starts, latest, begin = iteration.starts(), float("inf"), {}
    order = sorted(moved, key=lambda i: need.back_at[i])
    for number in reversed(order):  # the last moment at which each may begin, one after another
        n_seconds = MARGIN * iteration.parts[number].n_bytes / bandwidth.back
        latest = begin[number] = min(latest, starts[need.back_at[number]]) - n_seconds
    found = {}
    for number in order:
        n_bytes, step = iteration.parts[number].n_bytes, need.back_at[number]
        while step > gone[number] and starts[step] > begin[number] and free[step - 1] >= n_bytes:
            step -= 1
            free[step] -= n_bytes
        found[number] = step
    return found


def _actions(iteration: Iteration, choices: Sequence[Choice], need: Needs, gone: dict[int, int],
             back: dict[int, int]) -> Plan:
    n_steps = len(iteration.seconds)
    before: list[list[Action]] = [[] for _ in range(n_steps)]
    after: list[list[Action]] = [[] for _ in range(n_steps)]
    for number, spans in enumerate(need.spans):
        for first, final in spans:
            saves = number in gone and first != need.back_at[number]
            after[final].append(Action(Do.SAVE if saves else Do.DROP, number))
    for do, steps in ((Do.GONE, gone), (Do.FETCH, back), (Do.HERE, {i: need.back_at[i] for i in back})):
        for number, step in sorted(steps.items(), key=lambda item: need.back_at[item[0]]):
            before[step].append(Action(do, number))
    for step, numbers in need.again.items():
        before[step].extend(Action(Do.AGAIN, number) for number in numbers)
    made = tuple(choice if i in need.back_at else Choice.KEEP for i, choice in enumerate(choices))
    return Plan(made, tuple(map(tuple, before)), tuple(map(tuple, after)))
