"""Choices within a limit: where an iteration needs most, the array that costs least per byte leaves."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.nets.memory.plans.iteration import Bandwidth, Iteration, Part
from scaffe.nets.memory.plans.needs import Needs, needs
from scaffe.nets.memory.plans.plan import Choice, MemoryTooSmallError

Ways = tuple[Choice, ...]


def within(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth, ways: Ways, share: float) -> list[Choice]:
    """Choices that need no more than the limit in any step.

    Args:
        iteration: the arrays and steps.
        n_bytes: the limit.
        bandwidth: of the slow memory.
        ways: in which an array may leave: MOVE, AGAIN or both.
        share: the part of a move's seconds that counts as its cost: 0 if all moves hide behind computing, 1 if none do.

    Raises:
        MemoryTooSmallError: there are no such choices.
    """
    choices = [Choice.KEEP] * len(iteration.parts)
    while True:
        need = needs(iteration, choices)
        most = max(need.n_bytes, default=0)
        if most <= n_bytes:
            return choices
        step = need.n_bytes.index(most)
        found = _cheapest(iteration, choices, need, step, bandwidth, ways, share)
        if found is not None:
            choices[found[0]] = found[1]
        elif not _move_instead(iteration, choices, need, step, ways):
            raise MemoryTooSmallError(f"activations need {most:,} bytes at least, {n_bytes:,} are left for them")


def _cheapest(iteration: Iteration, choices: Sequence[Choice], need: Needs, step: int, bandwidth: Bandwidth,
              ways: Ways, share: float) -> tuple[int, Choice] | None:
    """The array whose leaving frees memory in a step at the least cost per byte, and how it leaves; of equal ones the
    longest."""
    best, found = (float("inf"), 0), None
    for number, part in enumerate(iteration.parts):
        if choices[number] is not Choice.KEEP or not _lies_idle(iteration, need, number, step):
            continue
        costs = {Choice.MOVE: share * (part.n_saves / bandwidth.out + _n_reads(part) / bandwidth.back),
                 Choice.AGAIN: iteration.again_seconds(number) / max(part.n_bytes, 1)}
        for way in ways:
            if way is Choice.AGAIN and part.again is None:
                continue
            cost = costs[way], -part.n_bytes
            if cost < best:
                best, found = cost, (number, way)
    return found


def _lies_idle(iteration: Iteration, need: Needs, number: int, step: int) -> bool:
    """Whether an array that is kept is in memory in a step only for later ones."""
    part = iteration.parts[number]
    if part.lasts:
        return not any(used[0] <= step <= used[-1] for used in part.uses)
    if not part.forward:
        return False
    final = need.spans[number][0][1]
    first = part.backward[0] if part.backward else final
    return part.forward[-1] < step < first


def _move_instead(iteration: Iteration, choices: list[Choice], need: Needs, step: int, ways: Ways) -> bool:
    """Move arrays that would be computed again, where these or their inputs fill a step. Returns whether there were
    some."""
    crowd = {number for number, spans in enumerate(need.spans) if len(spans) > 1 and spans[1][0] <= step <= spans[1][1]}
    crowd |= {number for number, spans in enumerate(need.spans)
              if spans and not iteration.parts[number].backward and spans[-1][0] <= step <= spans[-1][1]}
    blamed = [number for number, choice in enumerate(choices) if choice is Choice.AGAIN
              and need.back_at.get(number, step + 1) <= step and crowd & {number, *_inputs(iteration, number)}]
    if Choice.MOVE not in ways or not blamed:
        return False
    for number in blamed:
        choices[number] = Choice.MOVE
    return True


def _n_reads(part: Part) -> int:
    return part.n_visits if part.lasts else 1


def _inputs(iteration: Iteration, number: int) -> tuple[int, ...]:
    again = iteration.parts[number].again
    return again.inputs if again else ()
