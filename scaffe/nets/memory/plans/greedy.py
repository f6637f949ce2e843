"""Choices within a limit: where an iteration needs most, the array that costs least per byte leaves."""

from __future__ import annotations

from typing import NamedTuple

from scaffe.nets.memory.plans.iteration import Bandwidth, Iteration
from scaffe.nets.memory.plans.needs import Needs, needs
from scaffe.nets.memory.plans.plan import Choice, MemoryTooSmallError

Ways = tuple[Choice, ...]


def within(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth, ways: Ways, share: float) -> list[Choice]:
    """Choices that need no more than the limit in any step.

    Args:
        iteration: the arrays and steps.
        n_bytes: the limit.
        bandwidth: of the slow memory.
        ways: in which an array may leave: of MOVE, AGAIN and, beside MOVE, LATE.
        share: the part of a move's seconds that counts as its cost: 0 if all moves hide behind computing, 1 if none do.

    Raises:
        MemoryTooSmallError: there are no such choices.
    """
    choices, leaving = [Choice.KEEP] * len(iteration.parts), _cheapest_first(iteration, bandwidth, ways, share)
    need = needs(iteration, choices)
    while (most := max(need.n_bytes, default=0)) > n_bytes:
        step = need.n_bytes.index(most)
        found = next((each for each in leaving if _lies_idle(iteration, need, each, step)), None)
        if found is not None:
            choices[found.number] = found.way
            leaving = [each for each in leaving if each.number != found.number or _goes_beyond(each.way, found.way)]
        elif not _move_instead(iteration, choices, need, step, ways):
            raise MemoryTooSmallError(f"activations need {most:,} bytes at least, {n_bytes:,} are left for them")
        if found is not None and found.way is not Choice.AGAIN:
            need.move(iteration, found.number, found.way)
        else:
            need = needs(iteration, choices)
    return choices


def _goes_beyond(way: Choice, other: Choice) -> bool:
    """Whether an array that leaves in the other way may yet come to leave in this one."""
    return other is Choice.LATE and way is not Choice.LATE


class _Leaving(NamedTuple):
    """How an array may leave memory, in the order in which arrays do: at the least cost per byte, of equal ones the
    longest."""

    cost: float
    less_n_bytes: int
    number: int
    place: int
    way: Choice


def _cheapest_first(iteration: Iteration, bandwidth: Bandwidth, ways: Ways, share: float) -> list[_Leaving]:
    """All ways in which arrays may leave; what is updated late may do so before, too, or not."""
    found = []
    for number, part in enumerate(iteration.parts):
        costs = {Choice.AGAIN: iteration.again_seconds(number) / max(part.n_bytes, 1)} if part.again else {}
        for way, n_less in ((Choice.MOVE, 0), *([(Choice.LATE, 1)] if part.late and part.lasts else [])):
            n_saves, n_reads = (part.n_saves, part.n_visits - n_less) if part.lasts else (1, 1)
            costs[way] = share * (n_saves / bandwidth.out + n_reads / bandwidth.back)
        found += [_Leaving(costs[way], -part.n_bytes, number, place, way) for place, way in enumerate(ways)
                  if way in costs]
    return sorted(found)


def _lies_idle(iteration: Iteration, need: Needs, leaving: _Leaving, step: int) -> bool:
    """Whether an array is in memory in a step only for later ones, and would not be if it left so."""
    part = iteration.parts[leaving.number]
    spans = need.spans[leaving.number]
    if part.lasts:
        stays = [used[0] <= step <= used[-1] for used in part.uses]
        between = leaving.way is Choice.LATE and part.backward and part.backward[0] <= step <= part.late[-1]
        return any(first <= step <= final for first, final in spans) and not any(stays) and not between
    if not part.forward:
        return False
    first = part.backward[0] if part.backward else spans[0][1]
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


def _inputs(iteration: Iteration, number: int) -> tuple[int, ...]:
    again = iteration.parts[number].again
    return again.inputs if again else ()
