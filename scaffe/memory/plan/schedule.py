"""From choices to a plan: when offloads and fetches begin, where steps wait for them, and how long that takes.

A tensor counts as in memory until the step before which its OFFLOADED stands, and again from the step before which its
FETCH stands. So a plan keeps within its limit however long moves take. Their estimated times only decide how much free
memory is lent to tensors on their way, so that steps wait for them less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from math import inf

from scaffe.memory.plan.greedy import Needs, needs
from scaffe.memory.plan.plan import Action, Choice, Do, MemoryTooSmallError, Plan
from scaffe.memory.problem.iteration import Bandwidth, Iteration

MOVES = (Choice.MOVE, Choice.BEHIND, Choice.LATE, Choice.BETWEEN)
# Moves may take so much longer than estimated before a step waits. A link keeps its speed, unlike a disk: there memory
# is lent to all moves for what they are estimated to take before it is lent for more.
MARGINS = (1.0, 1.25)
FEW_WAITS = 0.02  # of an iteration: a plan with no more is not made once more
SHORTER = 0.95  # of its seconds, which it is then seldom below


@dataclass
class _Visit:
    """A tensor's stay in memory.

    Attributes:
        fetches, offloads: whether it is fetched before, and offloaded after.
        not_before, until: the step before which it cannot begin to be fetched, and the one before which it must be out.
        begins, gone: the steps before which it begins to be fetched, and is out.
    """

    number: int
    first: int
    final: int
    fetches: bool = False
    offloads: bool = False
    not_before: int = 0
    until: int = 0
    begins: int = 0
    gone: int = 0


def schedule(iteration: Iteration, choices: Sequence[Choice], n_bytes: int, bandwidth: Bandwidth,
             lent: float = 1.0) -> Plan:
    """The plan that carries out these choices within a limit. Raises MemoryTooSmallError if the choices need more in
    some step.

    Args:
        lent: the part of a step's free memory that tensors on their way may use.
    """
    return placed(iteration, choices, visits_within(iteration, choices, n_bytes), n_bytes, bandwidth, lent)


Visits = tuple[Needs, list[_Visit]]


def visits_within(iteration: Iteration, choices: Sequence[Choice], n_bytes: int) -> Visits:
    """The tensors' stays in memory with these choices. Raises MemoryTooSmallError if they need more in some step."""
    need = needs(iteration, choices)
    if max(need.n_bytes, default=0) > n_bytes:
        raise MemoryTooSmallError(f"these choices need {max(need.n_bytes):,} bytes, the limit is {n_bytes:,}")
    return need, _all_visits(iteration, choices, need)


def _all_visits(iteration: Iteration, choices: Sequence[Choice], need: Needs) -> list[_Visit]:
    numbers = range(len(iteration.tensors))
    return [each for number in numbers for each in _visits(iteration, choices, need, number)]


def least_seconds(iteration: Iteration, found: Visits, bandwidth: Bandwidth) -> tuple[float, float]:
    """Two numbers of seconds that hold for any plan with these stays: the least that an iteration takes, and what its
    moves take together. An iteration takes at least its steps and recomputing, and at least the moves in one queue."""
    need, visits = found
    compute = sum(iteration.seconds) + sum(map(iteration.recompute_seconds, chain(*need.recompute.values())))
    out = sum(iteration.tensors[each.number].n_bytes for each in visits if each.offloads) / bandwidth.out
    back = sum(iteration.tensors[each.number].n_bytes for each in visits if each.fetches) / bandwidth.back
    return max(compute, max(out, back) if bandwidth.at_once else out + back), out + back


def placed(iteration: Iteration, choices: Sequence[Choice], found: Visits, n_bytes: int, bandwidth: Bandwidth,
           lent: float = 1.0, below: float = inf) -> Plan:
    """``schedule`` once the stays are known. Where waits on a link make an iteration longer, so that moves have more
    time than they were lent memory for, the plan is made once more from when its steps begin; the shorter one counts.
    Not where that would hardly take less than ``below`` seconds."""
    plan = _placed(iteration, choices, found, n_bytes, bandwidth, lent, iteration.starts())
    first = predict(iteration, plan, bandwidth)
    if not bandwidth.at_once or first.waited <= FEW_WAITS * first.compute or first.seconds * SHORTER >= below:
        return plan
    found = found[0], _all_visits(iteration, choices, found[0])
    other = _placed(iteration, choices, found, n_bytes, bandwidth, lent, first.starts)
    return other if predict(iteration, other, bandwidth).seconds < first.seconds else plan


def _placed(iteration: Iteration, choices: Sequence[Choice], found: Visits, n_bytes: int, bandwidth: Bandwidth,
            lent: float, starts: Sequence[float]) -> Plan:
    """``placed`` by when each step starts."""
    need, visits = found
    free = [int(lent * (n_bytes - used)) for used in need.n_bytes]
    for visit in visits:
        visit.begins, visit.gone = visit.first, visit.final + 1
    for margin in MARGINS if bandwidth.at_once else MARGINS[-1:]:
        _place_offloads(iteration, visits, free, bandwidth.out, margin, starts)
        _place_fetches(iteration, visits, free, bandwidth.back, margin, starts)
    return _plan(iteration, choices, need, visits)


def _visits(iteration: Iteration, choices: Sequence[Choice], need: Needs, number: int) -> list[_Visit]:
    """A tensor's stays; none if it is always in memory."""
    tensor = iteration.tensors[number]
    moves = choices[number] in MOVES and not tensor.is_transient
    is_persistent = tensor.is_persistent
    if is_persistent and not moves:
        return []
    n_steps = len(iteration.seconds)
    found = [_Visit(number, first, final, until=n_steps) for first, final in need.spans[number]]
    for i, visit in enumerate(found):
        visit.fetches = moves and (is_persistent or i > 0)
        visit.offloads = moves and (tensor.is_changed_by(visit.final) if is_persistent else visit is not found[-1])
        visit.until = found[i + 1].first if i + 1 < len(found) else n_steps
        passes_end = n_steps - iteration.n_updates
        visit.not_before = passes_end if visit.first >= passes_end else 0
    return found


def _place_offloads(iteration: Iteration, visits: Sequence[_Visit], free: list[int], rate: float,
                    margin: float, starts: Sequence[float]) -> None:
    """Set the steps before which memory must be free: as late as offloads are done by then."""
    done = 0.0
    for visit in sorted((each for each in visits if each.offloads), key=lambda each: each.final):
        n_bytes, step = iteration.tensors[visit.number].n_bytes, max(visit.final + 1, visit.gone)
        done = max(done, starts[visit.final + 1]) + margin * n_bytes / rate
        while step < visit.until and starts[step] < done and free[step] >= n_bytes:
            free[step] -= n_bytes
            step += 1
        visit.gone = step


def _place_fetches(iteration: Iteration, visits: Sequence[_Visit], free: list[int], rate: float,
                   margin: float, starts: Sequence[float]) -> None:
    """Set the steps before which fetches begin: early enough for their tensors' first use."""
    latest, begin = float("inf"), []
    for i, visit in enumerate(visits):
        before = visits[i - 1] if i and visits[i - 1].number == visit.number else None
        if before is not None:
            visit.not_before = max(visit.not_before, before.gone, before.final + 1)
    order = sorted((each for each in visits if each.fetches), key=lambda each: each.first)
    for visit in reversed(order):  # the last moment at which each may begin, one after another
        n_seconds = margin * iteration.tensors[visit.number].n_bytes / rate
        latest = min(latest, starts[visit.first]) - n_seconds
        begin.append(latest)
    for visit, moment in zip(order, reversed(begin), strict=True):
        n_bytes, step = iteration.tensors[visit.number].n_bytes, visit.begins
        while step > visit.not_before and starts[step] > moment and free[step - 1] >= n_bytes:
            step -= 1
            free[step] -= n_bytes
        while step in iteration.joined and step < visit.first:
            free[step] += n_bytes
            step += 1
        visit.begins = step
    for before, visit in pairwise(visits):
        if before.number == visit.number and visit.fetches:
            before.until = visit.begins


def _plan(iteration: Iteration, choices: Sequence[Choice], need: Needs, visits: Sequence[_Visit]) -> Plan:
    n_steps = len(iteration.seconds)
    before: list[list[Action]] = [[] for _ in range(n_steps)]
    after: list[list[Action]] = [[] for _ in range(n_steps)]
    for visit in visits:
        after[visit.final].append(Action(Do.OFFLOAD if visit.offloads else Do.DROP, visit.number))
    for visit in sorted(visits, key=lambda each: (each.first, each.number)):
        if visit.offloads and visit.gone < n_steps:
            before[visit.gone].append(Action(Do.OFFLOADED, visit.number))
        elif visit.offloads:
            after[-1].append(Action(Do.OFFLOADED, visit.number))
    fetched = sorted((each for each in visits if each.fetches), key=lambda each: each.first)
    for visit in fetched:
        before[visit.begins].append(Action(Do.FETCH, visit.number))
    for visit in fetched:
        before[visit.first].append(Action(Do.FETCHED, visit.number))
    for step, numbers in need.recompute.items():
        before[step].extend(Action(Do.RECOMPUTE, number) for number in numbers)
    made = tuple(Choice.KEEP if i not in need.returns_at and not iteration.tensors[i].is_persistent else
                 Choice.MOVE if choice in MOVES else choice for i, choice in enumerate(choices))
    return Plan(made, tuple(map(tuple, before)), tuple(map(tuple, after)), tuple(choices))


@dataclass
class Prediction:
    """Seconds and bytes of one iteration.

    Attributes:
        offloaded, fetched: bytes moved out and back.
        starts: when each step starts, and when the last one ends.
    """

    compute: float
    recompute: float = 0.0
    waited: float = 0.0
    offloaded: int = 0
    fetched: int = 0
    starts: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.compute + self.recompute + self.waited

    @property
    def slowdown(self) -> float:
        """The iteration's time as a multiple of that without a limit."""
        return self.seconds / self.compute if self.compute else 1.0


def predict(iteration: Iteration, plan: Plan, bandwidth: Bandwidth) -> Prediction:
    """The times of one iteration. Moves run one after another, in the order in which they begin; offloads and fetches
    run at the same time if the backing store allows both."""
    found, done, now = Prediction(sum(iteration.seconds)), dict[int, float](), 0.0
    free_at = {False: 0.0, True: 0.0}  # True: moves out, where they have a queue of their own

    def begin(number: int, offloads: bool) -> None:
        n_bytes, queue = iteration.tensors[number].n_bytes, offloads and bandwidth.at_once
        rate = bandwidth.out if offloads else bandwidth.back
        free_at[queue] = done[number] = max(free_at[queue], now) + n_bytes / rate
        found.offloaded += n_bytes * offloads
        found.fetched += n_bytes * (not offloads)

    def act(action: Action) -> float:
        """Seconds that the next step comes later by that."""
        if action.do is Do.RECOMPUTE:
            seconds = iteration.recompute_seconds(action.tensor)
            found.recompute += seconds
            return seconds
        if action.do in (Do.OFFLOADED, Do.FETCHED):
            waited = max(0.0, done[action.tensor] - now)
            found.waited += waited
            return waited
        if action.do is not Do.DROP:
            begin(action.tensor, action.do is Do.OFFLOAD)
        return 0.0

    for before, seconds, after in zip(plan.before, iteration.seconds, plan.after, strict=True):
        for action in before:
            now += act(action)
        found.starts.append(now)
        now += seconds
        for action in after:
            now += act(action)
    found.starts.append(now)
    return found
