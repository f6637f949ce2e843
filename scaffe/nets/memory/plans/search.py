"""A search for better choices, by what the predicted iteration gains."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from scaffe.nets.memory.plans.iteration import Bandwidth, Iteration, Part
from scaffe.nets.memory.plans.plan import Choice, MemoryTooSmallError
from scaffe.nets.memory.plans.predict import predict
from scaffe.nets.memory.plans.schedule import schedule

MOST_DRAWN, MOST_IN_VAIN = 2000, 600  # changes that are tried, and those in a row that gain nothing
MOST_VISITS = 200_000  # changes times arrays: a change takes as much longer to judge as there are more arrays
MOST_CHANGED = 3  # arrays at once: what one has to leave for, and what another gains by that, are found together
ENOUGH = 1.005  # times the iteration where nothing moves: no more is looked for
TOLL = 0.1  # of a move's seconds: what it takes from layers that compute meanwhile, by the memory's speed


@dataclass(frozen=True)
class Search:
    """A search among the choices that keep within a limit.

    Attributes:
        iteration: the arrays and steps.
        n_bytes: the limit.
        bandwidth: of the slow memory.
    """

    iteration: Iteration
    n_bytes: int
    bandwidth: Bandwidth

    def seconds(self, choices: Sequence[Choice]) -> float:
        """Of an iteration with these choices, and the toll of its moves; infinite where they do not fit."""
        try:
            plan = schedule(self.iteration, choices, self.n_bytes, self.bandwidth)
        except MemoryTooSmallError:
            return float("inf")
        found = predict(self.iteration, plan, self.bandwidth)
        return found.seconds + TOLL * (found.saved / self.bandwidth.out + found.fetched / self.bandwidth.back)

    def improved(self, choices: Sequence[Choice]) -> list[Choice]:
        """Change a few arrays at a time, drawn at random, and keep what makes the iteration shorter (random descent).
        Equal inputs have equal draws, and so equal choices."""
        draw, best, found, in_vain = random.Random(0), self.seconds(choices), list(choices), 0
        enough = sum(self.iteration.seconds) * ENOUGH
        free = [(number, _choices_of(part)) for number, part in enumerate(self.iteration.parts)
                if part.forward or part.lasts]
        for _ in range(min(MOST_DRAWN, MOST_VISITS // len(self.iteration.parts)) if free else 0):
            if best <= enough or in_vain == MOST_IN_VAIN:
                break
            trial = list(found)
            for number, able in draw.choices(free, k=draw.randint(1, MOST_CHANGED)):
                trial[number] = draw.choice(able)
            seconds, in_vain = self.seconds(trial), in_vain + 1
            if seconds < best:
                best, found, in_vain = seconds, trial, 0
        return found


def _choices_of(part: Part) -> list[Choice]:
    """What can be done with an array."""
    found = [Choice.KEEP, Choice.MOVE]
    if part.again is not None:
        found.append(Choice.AGAIN)
    if part.lasts and part.may_leave:
        found.append(Choice.BEHIND)
    if part.lasts and part.late:
        found += [Choice.LATE, Choice.BETWEEN]
    return found
