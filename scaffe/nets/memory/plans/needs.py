"""Which arrays are in memory in which steps, where moving them takes no time: the least that given choices need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scaffe.nets.memory.plans.iteration import Iteration, Part
from scaffe.nets.memory.plans.plan import Choice

TOGETHER = (Choice.KEEP, Choice.BEHIND, Choice.BETWEEN)  # in memory from forward to backward
LATE = (Choice.LATE, Choice.BETWEEN)  # from backward to a late update


@dataclass
class Needs:
    """When each array must be in memory.

    Attributes:
        spans: for each array, intervals of steps, both ends inclusive.
        first, last: for each array, the steps of backward that need it first and last; -1 if none does.
        back_at: array that leaves memory → the step of backward that needs it first.
        again: for each step, the arrays to compute again before it, in order.
        n_bytes: in memory in each step.
    """

    spans: list[list[tuple[int, int]]]
    first: list[int]
    last: list[int]
    back_at: dict[int, int] = field(default_factory=dict)
    again: dict[int, list[int]] = field(default_factory=dict)
    n_bytes: list[int] = field(default_factory=list)

    def move(self, iteration: Iteration, number: int, choice: Choice = Choice.MOVE) -> None:
        """Let an array move that was kept, or that moved less often. No other one is needed at other times by that."""
        part, step = iteration.parts[number], self.first[number]
        if step >= 0 and part.is_away_before(step):
            self.back_at[number] = step
        spans = _spans(part, self.back_at.get(number), self.last[number], choice)
        for intervals, n_bytes in ((self.spans[number], -part.n_bytes), (spans, part.n_bytes)):
            for first, final in intervals:
                for i in range(first, final + 1):
                    self.n_bytes[i] += n_bytes
        self.spans[number] = spans


def needs(iteration: Iteration, choices: Sequence[Choice]) -> Needs:
    """The steps in which each array is in memory: first those of backward, since what is computed again needs inputs.

    Args:
        iteration: the arrays and steps.
        choices: one for each array.
    """
    found = Needs([], [-1] * len(iteration.parts), [-1] * len(iteration.parts))
    users: dict[int, list[int]] = {}
    for number, part in enumerate(iteration.parts):
        for step in part.backward:
            users.setdefault(step, []).append(number)
    for step in sorted(users):
        for number in users[step]:
            _bring(iteration, choices, number, step, found)
    for number, part in enumerate(iteration.parts):
        stays = part.lasts and choices[number] is Choice.KEEP
        found.spans.append([(0, len(iteration.seconds) - 1)] if stays else
                           _spans(part, found.back_at.get(number), found.last[number], choices[number]))
    found.n_bytes = _resident(iteration, found.spans)
    return found


def _bring(iteration: Iteration, choices: Sequence[Choice], number: int, step: int, found: Needs) -> None:
    """Have an array in memory in a step of backward; what it is computed from comes first."""
    part = iteration.parts[number]
    if found.first[number] >= 0:
        found.last[number] = step
        return
    if choices[number] not in TOGETHER and part.is_away_before(step):
        found.back_at[number] = step
        if choices[number] is Choice.AGAIN and part.again:
            for source in part.again.inputs:
                _bring(iteration, choices, source, step, found)
            found.again.setdefault(step, []).append(number)
    found.first[number] = found.last[number] = step


def _spans(part: Part, back_at: int | None, last: int, choice: Choice) -> list[tuple[int, int]]:
    used = part.forward or part.backward
    if not used or part.momentary:
        return [(step, step) for step in used]
    if back_at is None:
        found = [(used[0], max(part.forward[-1] if part.forward else last, last))]
    else:
        found = [*([(used[0], part.forward[-1])] if part.forward else []), (back_at, last)]
    if part.late and part.late[0] - found[-1][1] > 1 and choice not in LATE:
        return [*found, (part.late[0], part.late[-1])]
    return [*found[:-1], (found[-1][0], max(found[-1][1], *part.late))] if part.late else found


def _resident(iteration: Iteration, spans: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    change = [0] * (len(iteration.seconds) + 1)
    for part, intervals in zip(iteration.parts, spans, strict=True):
        for first, final in intervals:
            change[first] += part.n_bytes
            change[final + 1] -= part.n_bytes
    n_bytes, total = [], 0
    for difference in change[:-1]:
        total += difference
        n_bytes.append(total)
    return n_bytes


def least_bytes(iteration: Iteration) -> int:
    """The least memory for which there is a plan: every array that can leave does, and comes back just in time.

    Computing again instead of moving needs inputs in memory, so no other choices need less in any step.
    """
    return max(needs(iteration, [Choice.MOVE] * len(iteration.parts)).n_bytes, default=0)
