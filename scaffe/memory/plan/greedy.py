"""When tensors are in memory if moves take no time, and choices that keep within a limit, found greedily."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from scaffe.memory.plan.plan import Choice, MemoryTooSmallError
from scaffe.memory.problem.iteration import Bandwidth, Iteration, Tensor

TOGETHER = (Choice.KEEP, Choice.BEHIND, Choice.BETWEEN)  # in memory from forward to backward
LATE = (Choice.LATE, Choice.BETWEEN)  # from backward to a late update
PARTLY = (Choice.BEHIND, Choice.LATE)  # moved less often than with MOVE


@dataclass
class Needs:
    """When each tensor must be in memory.

    Attributes:
        spans: for each tensor, intervals of steps, both ends inclusive.
        first, last: for each tensor, the steps of backward that need it first and last; -1 if none does.
        returns_at: for a tensor that is offloaded, dropped or recomputed, the step of backward that needs it first.
        recompute: for each step, the tensors to recompute before it, in order.
        n_bytes: in memory in each step.
    """

    spans: list[list[tuple[int, int]]]
    first: list[int]
    last: list[int]
    returns_at: dict[int, int] = field(default_factory=dict)
    recompute: dict[int, list[int]] = field(default_factory=dict)
    n_bytes: list[int] = field(default_factory=list)

    def move(self, iteration: Iteration, number: int, choice: Choice = Choice.MOVE) -> None:
        """Have a tensor offloaded that was kept, or that was offloaded less often. No other one is needed at other
        times by that."""
        tensor, step = iteration.tensors[number], self.first[number]
        if step >= 0 and tensor.is_offloaded_before(step):
            self.returns_at[number] = step
        spans = _spans(tensor, self.returns_at.get(number), self.last[number], choice)
        for intervals, n_bytes in ((self.spans[number], -tensor.n_bytes), (spans, tensor.n_bytes)):
            for first, final in intervals:
                for i in range(first, final + 1):
                    self.n_bytes[i] += n_bytes
        self.spans[number] = spans


def needs(iteration: Iteration, choices: Sequence[Choice]) -> Needs:
    """When each tensor must be in memory. Steps of backward are looked at first, since recomputing needs inputs."""
    found = Needs([], [-1] * len(iteration.tensors), [-1] * len(iteration.tensors))
    users: dict[int, list[int]] = {}
    for number, tensor in enumerate(iteration.tensors):
        for step in tensor.backward:
            users.setdefault(step, []).append(number)
    for step in sorted(users):
        for number in users[step]:
            _need(iteration, choices, number, step, found)
    for number, tensor in enumerate(iteration.tensors):
        stays = tensor.is_persistent and choices[number] is Choice.KEEP
        found.spans.append([(0, len(iteration.seconds) - 1)] if stays else
                           _spans(tensor, found.returns_at.get(number), found.last[number], choices[number]))
    found.n_bytes = _resident(iteration, found.spans)
    return found


def _need(iteration: Iteration, choices: Sequence[Choice], number: int, step: int, found: Needs) -> None:
    """Have a tensor in memory in a step of backward, and before it the inputs that it is recomputed from."""
    tensor = iteration.tensors[number]
    if found.first[number] >= 0:
        found.last[number] = step
        return
    if choices[number] not in TOGETHER and tensor.is_offloaded_before(step):
        found.returns_at[number] = step
        if choices[number] is Choice.RECOMPUTE and tensor.recompute:
            for source in tensor.recompute.inputs:
                _need(iteration, choices, source, step, found)
            found.recompute.setdefault(step, []).append(number)
    found.first[number] = found.last[number] = step


def _spans(tensor: Tensor, returns_at: int | None, last: int, choice: Choice) -> list[tuple[int, int]]:
    used = tensor.forward or tensor.backward
    if not used or tensor.is_transient:
        return [(step, step) for step in used]
    if returns_at is None:
        found = [(used[0], max(tensor.forward[-1] if tensor.forward else last, last))]
    else:
        found = [*([(used[0], tensor.forward[-1])] if tensor.forward else []), (returns_at, last)]
    if tensor.late and tensor.late[0] - found[-1][1] > 1 and choice not in LATE:
        return [*found, (tensor.late[0], tensor.late[-1])]
    return [*found[:-1], (found[-1][0], max(found[-1][1], *tensor.late))] if tensor.late else found


def _resident(iteration: Iteration, spans: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    change = [0] * (len(iteration.seconds) + 1)
    for tensor, intervals in zip(iteration.tensors, spans, strict=True):
        for first, final in intervals:
            change[first] += tensor.n_bytes
            change[final + 1] -= tensor.n_bytes
    n_bytes, total = [], 0
    for difference in change[:-1]:
        total += difference
        n_bytes.append(total)
    return n_bytes


def least_bytes(iteration: Iteration) -> int:
    """The least memory for which there is a plan: every tensor is offloaded where it can be, and fetched just in time.

    Recomputing instead needs inputs in memory, so that no other choices need less in any step.
    """
    return max(needs(iteration, [Choice.MOVE] * len(iteration.tensors)).n_bytes, default=0)


Ways = tuple[Choice, ...]


@dataclass(frozen=True)
class Price:
    """What choices are taken to cost.

    Attributes:
        ways: the choices that may be used: MOVE, RECOMPUTE and, beside MOVE, BEHIND and LATE.
        share: the part of a move's seconds that counts as its cost: 0 if all moves are hidden behind computing, 1 if
            none is.
        counts_idle: whether what counts besides are the seconds by which a move takes longer than its tensor lies idle.
    """

    ways: Ways
    share: float
    counts_idle: bool = False


def within(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth, price: Price,
           start: Sequence[Choice] = ()) -> list[Choice]:
    """Choices that need no more than the limit in any step. Raises MemoryTooSmallError if there are no such choices.

    Args:
        start: the choices to begin with, such as checkpoints; none: everything is kept. With some, nothing is
            recomputed that would need more at once than there was, since checkpoints then lie too far apart.
    """
    choices = list(start) or [Choice.KEEP] * len(iteration.tensors)
    offloads = [each for each in cheapest_first(iteration, bandwidth, price) if choices[each.number] is Choice.KEEP]
    need = needs(iteration, choices)
    while (most := max(need.n_bytes, default=0)) > n_bytes:
        step = need.n_bytes.index(most)
        found = next((each for each in offloads if _lies_idle(iteration, need, each, step) and (
            not start or each.way is not Choice.RECOMPUTE or _lowers(iteration, choices, each, need, step))), None)
        if found is not None:
            choices[found.number] = found.way
            offloads = [each for each in offloads if each.number != found.number or (
                found.way in PARTLY and each.way not in PARTLY)]  # which goes beyond it
        elif not _move_instead(iteration, choices, need, step, price.ways):
            raise MemoryTooSmallError(f"activations need {most:,} bytes at least, {n_bytes:,} are left for them")
        if found is not None and found.way in (Choice.MOVE, Choice.LATE):
            need.move(iteration, found.number, found.way)
        else:
            need = needs(iteration, choices)
    return choices


class Offload(NamedTuple):
    """A choice that takes a tensor out of memory, in the order in which they are made: at the least cost per byte, and
    of equal ones the longest tensor first."""

    cost: float
    less_n_bytes: int
    number: int
    place: int
    way: Choice


def cheapest_first(iteration: Iteration, bandwidth: Bandwidth, price: Price) -> list[Offload]:
    """All ways in which tensors may leave memory, in the order in which ``within`` takes them."""
    found, starts = list[Offload](), iteration.starts()
    for number, tensor in enumerate(iteration.tensors):
        costs = dict[Choice, float]()
        if tensor.recompute:
            costs[Choice.RECOMPUTE] = iteration.recompute_seconds(number) / max(tensor.n_bytes, 1)
        for way in _moves(tensor):
            n_reads = tensor.n_visits - (way is Choice.LATE) - (way is Choice.BEHIND)
            n_offloads, n_reads = (tensor.n_offloads, n_reads) if tensor.is_persistent else (1, 1)
            costs[way] = price.share * (n_offloads / bandwidth.out + n_reads / bandwidth.back)
            if price.counts_idle:
                costs[way] += _too_long(tensor, way, starts, bandwidth) / max(tensor.n_bytes, 1)
        found += [Offload(costs[way], -tensor.n_bytes, number, place, way) for place, way in enumerate(price.ways)
                  if way in costs]
    return sorted(found)


def _moves(tensor: Tensor) -> list[Choice]:
    late, behind = tensor.is_persistent and tensor.late, tensor.is_persistent and tensor.may_be_offloaded
    return [Choice.MOVE, *([Choice.LATE] if late else []), *([Choice.BEHIND] if behind else [])]


def _too_long(tensor: Tensor, way: Choice, starts: Sequence[float], bandwidth: Bandwidth) -> float:
    """Seconds by which a tensor's moves, were they alone, take longer than it lies idle."""
    out, back, uses = tensor.n_bytes / bandwidth.out, tensor.n_bytes / bandwidth.back, tensor.uses
    if not tensor.is_persistent:
        return max(0.0, out + back - (starts[uses[-1][0]] - starts[uses[0][-1] + 1])) if len(uses) > 1 else 0.0
    leaves = [not (way is Choice.BEHIND and before is tensor.forward or way is Choice.LATE and after is tensor.late)
              for before, after in pairwise(uses)]
    inside = sum(max(0.0, back - (starts[after[0]] - starts[before[-1] + 1]))
                 for (before, after), there in zip(pairwise(uses), leaves, strict=True) if there)
    return inside + max(0.0, out - (starts[-1] - starts[uses[-1][-1] + 1])) + max(0.0, back - starts[uses[0][0]])


def _lies_idle(iteration: Iteration, need: Needs, offloads: Offload, step: int) -> bool:
    """Whether a tensor is in memory in a step only for later ones, and would not be with this choice."""
    tensor = iteration.tensors[offloads.number]
    spans = need.spans[offloads.number]
    if tensor.is_persistent:
        stays = [used[0] <= step <= used[-1] for used in tensor.uses]
        between = offloads.way is Choice.LATE and tensor.backward and tensor.backward[0] <= step <= tensor.late[-1]
        ahead = offloads.way is Choice.BEHIND and tensor.forward[0] <= step <= tensor.backward[-1]
        return any(first <= step <= final for first, final in spans) and not any(stays) and not between and not ahead
    if not tensor.forward:
        return False
    first = tensor.backward[0] if tensor.backward else spans[0][1]
    return tensor.forward[-1] < step < first


def _lowers(iteration: Iteration, choices: Sequence[Choice], offloads: Offload, need: Needs, step: int) -> bool:
    """Whether a choice leaves less in memory in the fullest step, and nowhere more than there was in that."""
    trial = list(choices)
    trial[offloads.number] = offloads.way
    n_bytes = needs(iteration, trial).n_bytes
    return n_bytes[step] < need.n_bytes[step] and max(n_bytes) <= need.n_bytes[step]


def _move_instead(iteration: Iteration, choices: list[Choice], need: Needs, step: int, ways: Ways) -> bool:
    """Offload tensors that would be recomputed, if they or their inputs fill a step. Returns whether there were
    some."""
    crowd = {number for number, spans in enumerate(need.spans) if len(spans) > 1 and spans[1][0] <= step <= spans[1][1]}
    crowd |= {number for number, spans in enumerate(need.spans)
              if spans and not iteration.tensors[number].backward and spans[-1][0] <= step <= spans[-1][1]}
    inputs = [() if tensor.recompute is None else tensor.recompute.inputs for tensor in iteration.tensors]
    blamed = [number for number, choice in enumerate(choices) if choice is Choice.RECOMPUTE
              and need.returns_at.get(number, step + 1) <= step and crowd & {number, *inputs[number]}]
    if Choice.MOVE not in ways or not blamed:
        return False
    for number in blamed:
        choices[number] = Choice.MOVE
    return True
