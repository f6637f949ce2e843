"""How a plan is chosen, by name: ``-placement``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from scaffe.nets.memory.plans.geeps import pinned
from scaffe.nets.memory.plans.greedy import Ways, instead, within
from scaffe.nets.memory.plans.iteration import Bandwidth, Iteration, Part
from scaffe.nets.memory.plans.needs import least_bytes
from scaffe.nets.memory.plans.plan import Choice, MemoryTooSmallError, Plan
from scaffe.nets.memory.plans.predict import predict
from scaffe.nets.memory.plans.schedule import schedule

BOTH: Ways = (Choice.MOVE, Choice.AGAIN)
SHARES = (0.0, 0.1, 0.3, 1.0)
MOST_TRIALS = 200
MOST_OTHERS = 6  # of which one moves in the place of an array that is kept
WORTH = 0.999  # of a time: what is not shorter than that is no gain
ENOUGH = 1.005  # times the iteration where nothing moves: no more is looked for
TOLL = 0.1  # of a move's seconds: what it takes from layers that compute meanwhile, by the memory's speed


def auto(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """Move or compute again, array by array, by what takes less time behind computing.

    Recomputing is Chen et al.'s (2016); which array is better moved is decided as in Capuchin (ASPLOS 2020), by what
    the predicted iteration gains, first greedily, then by trying other choices one array at a time.
    """
    least = least_bytes(iteration)
    if least > n_bytes:
        raise MemoryTooSmallError(f"{n_bytes:,} bytes for activations are too few; the least are {least:,}")
    starts = [within(iteration, n_bytes, bandwidth, BOTH, share) for share in SHARES]
    best = min(starts, key=lambda choices: _seconds(iteration, choices, n_bytes, bandwidth))
    return schedule(iteration, _improved(iteration, best, n_bytes, bandwidth), n_bytes, bandwidth)


def move(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """Move whatever does not fit; compute nothing again."""
    return schedule(iteration, within(iteration, n_bytes, bandwidth, (Choice.MOVE,), 1.0), n_bytes, bandwidth)


def recompute(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """Compute again whatever does not fit; move nothing."""
    return schedule(iteration, within(iteration, n_bytes, bandwidth, (Choice.AGAIN,), 1.0), n_bytes, bandwidth)


def geeps(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """GeePS's Algorithm 1 (Cui et al., EuroSys 2016, 3.3): what is not pinned moves. See ``geeps.pinned``."""
    stays = pinned(iteration, n_bytes)
    choices = [Choice.KEEP if number in stays else Choice.MOVE for number in range(len(iteration.parts))]
    return schedule(iteration, choices, n_bytes, bandwidth)


Placement = Callable[[Iteration, int, Bandwidth], Plan]
PLACEMENTS: dict[str, Placement] = {"auto": auto, "geeps": geeps, "move": move, "recompute": recompute}


def _improved(iteration: Iteration, choices: list[Choice], n_bytes: int, bandwidth: Bandwidth) -> list[Choice]:
    """Try the other choices of one array after another, longest first; keep what makes the iteration shorter. Where one
    that has left is kept, others leave in its place."""
    best = _seconds(iteration, choices, n_bytes, bandwidth)
    floor = sum(iteration.seconds) * ENOUGH
    order = sorted((i for i, part in enumerate(iteration.parts) if part.forward or part.lasts),
                   key=lambda i: -iteration.parts[i].n_bytes)
    for number in order[:MOST_TRIALS]:
        for choice in Choice:
            if best <= floor:
                return choices
            if choice is choices[number] or not _can_be(iteration.parts[number], choice):
                continue
            changed = [*choices[:number], choice, *choices[number + 1:]]
            for trial in (changed, *_refilled(iteration, changed, n_bytes, bandwidth, number)):
                seconds = _seconds(iteration, trial, n_bytes, bandwidth)
                if seconds < best * WORTH:
                    best, choices = seconds, trial
    return choices


def _can_be(part: Part, choice: Choice) -> bool:
    if choice is Choice.AGAIN:
        return part.again is not None
    return choice is not Choice.BEHIND or (part.lasts and part.may_leave)


def _refilled(iteration: Iteration, choices: Sequence[Choice], n_bytes: int, bandwidth: Bandwidth,
              number: int) -> Iterator[list[Choice]]:
    """With one array kept for certain: who else may leave so that the limit holds."""
    if choices[number] is not Choice.KEEP:
        return
    for ways, share in ((BOTH, 0.0), (BOTH, 1.0), ((Choice.MOVE,), 1.0)):
        with suppress(MemoryTooSmallError):
            yield within(iteration, n_bytes, bandwidth, ways, share, choices, number)
    for other in instead(iteration, choices, n_bytes, number)[:MOST_OTHERS]:
        yield [*choices[:other], Choice.MOVE, *choices[other + 1:]]


def _seconds(iteration: Iteration, choices: Sequence[Choice], n_bytes: int, bandwidth: Bandwidth) -> float:
    """Of an iteration with these choices, and the toll of its moves; infinite where they do not fit."""
    try:
        found = predict(iteration, schedule(iteration, choices, n_bytes, bandwidth), bandwidth)
    except MemoryTooSmallError:
        return float("inf")
    return found.seconds + TOLL * (found.saved / bandwidth.out + found.fetched / bandwidth.back)
