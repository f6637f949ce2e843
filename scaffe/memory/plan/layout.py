"""Where the tensors of a plan lie: offsets in one memory (dynamic storage allocation), and plans whose layout fits."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, sqrt

from scaffe.mapped_memory import rounded
from scaffe.memory.plan.greedy import least_bytes
from scaffe.memory.plan.placements import PLACEMENTS, Placement
from scaffe.memory.plan.plan import Action, Choice, Do, MemoryTooSmallError, Plan, resident_bytes
from scaffe.memory.plan.schedule import predict, schedule
from scaffe.memory.problem.iteration import Bandwidth, Iteration
from scaffe.nets.blob_memory import lowest

Intervals = Sequence[tuple[int, int]]

MOST_TRIALS, MOST_VISITS = 400, 2_000_000  # orders that are tried, and those times pairs of arrays that meet


def packed(lengths: Sequence[int], intervals: Sequence[Intervals], room: int) -> tuple[list[int], int]:
    """Place tensors one after another, each at the lowest offset at which it meets no other, the largest first. If they
    take more than the room, other orders are tried, in which a tensor that ends last, or any other, comes earlier
    (random descent, equal for equal inputs). Returns offsets, 0 for tensors that are never in memory, and the length of
    all, in bytes.

    Args:
        lengths: of the tensors, in bytes.
        intervals: for each, the steps in which it is in memory, first and last inclusive.
        room: in bytes; no better order is searched for once everything fits.
    """
    there = [number for number, each in enumerate(intervals) if each]
    met = {i: [j for j in there if i != j and _meet(intervals[i], intervals[j])] for i in there}
    order, draw = sorted(there, key=lambda i: -lengths[i]), random.Random(0)
    offsets, n_bytes = lowest(order, lengths, met)
    for _ in range(min(MOST_TRIALS, MOST_VISITS // max(1, sum(map(len, met.values()))))):
        if n_bytes <= room:
            break
        last = next(i for i, number in enumerate(order) if offsets[number] + lengths[number] == n_bytes)
        chosen, trial = draw.choice((last, draw.randrange(len(order)))), list(order)
        trial.insert(draw.randint(0, chosen), trial.pop(chosen))
        found = lowest(trial, lengths, met)
        if found[1] <= n_bytes:
            order, (offsets, n_bytes) = trial, found
    return offsets, n_bytes


def _meet(mine: Intervals, others: Intervals) -> bool:
    return any(first <= until and since <= final for first, final in mine for since, until in others)


Steps = list[tuple[int, int]]
STARTS, ENDS = (Do.FETCH, Do.RECOMPUTE), (Do.OFFLOADED, Do.DROP)


def occupied(iteration: Iteration, plan: Plan) -> list[Steps]:
    """For each tensor the steps in which a plan has it in memory, first and last inclusive."""
    found: list[Steps] = [[] for _ in iteration.tensors]
    since: dict[int, int] = {}

    def act(actions: tuple[Action, ...], begins: int, ends: int) -> None:
        for action in actions:
            if action.do in STARTS:
                since[action.tensor] = begins
            elif action.do in ENDS and action.tensor in since:
                found[action.tensor].append((since.pop(action.tensor), ends))

    for step, (before, after) in enumerate(zip(plan.before, plan.after, strict=True)):
        act(before, step, step - 1)
        for number in iteration.used_in[step]:
            tensor = iteration.tensors[number]
            if step in tensor.begins and not tensor.is_persistent:
                since.setdefault(number, step)
        act(after, step + 1, step)
    always = [(0, len(iteration.seconds) - 1)]
    return [always if tensor.is_persistent and choice is not Choice.MOVE else intervals
            for tensor, choice, intervals in zip(iteration.tensors, plan.choices, found, strict=True)]


@dataclass(frozen=True)
class Stay:
    """The pages of a device's memory that a tensor lies in from a step on, until its next stay. See ``paging``.

    Attributes:
        tensor: its number.
        pages: their numbers, in order of its bytes.
    """

    tensor: int
    first_step: int
    pages: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Where tensors lie.

    Attributes:
        offsets: of the first tensors in one memory that is always allocated, in bytes; None if each has addresses of
            its own.
        n_bytes: the most that all tensors take.
        others_bytes: the most that the tensors outside that memory take.
        stays: of all tensors, one at least of each, by first step; none if they do not lie in pages.
    """

    offsets: list[int] | None
    n_bytes: int
    others_bytes: int
    stays: tuple[Stay, ...] = ()


Lay = Callable[[Iteration, Plan, int], Layout]
"""Lays out all tensors of a plan on a device, in so many bytes if it can."""


def arrangement(iteration: Iteration, plan: Plan, n_arranged: int, n_bytes: int = 0) -> Layout:
    """Tensors in one memory that is always allocated.

    Args:
        n_arranged: so many tensors, the first, lie in that memory.
        n_bytes: for all tensors; no shorter layout is searched for once they fit.
    """
    intervals = occupied(iteration, plan)[:n_arranged]
    others = resident_bytes(iteration, plan)
    for tensor, spans in zip(iteration.tensors, intervals, strict=False):
        for first, final in spans:
            for step in range(first, final + 1):
                others[step] -= tensor.n_bytes
    most = max(others, default=0)
    offsets, length = packed([tensor.n_bytes for tensor in iteration.tensors[:n_arranged]], intervals, n_bytes - most)
    return Layout(offsets, rounded(length) + most, most)


def in_one_piece(iteration: Iteration, plan: Plan, n_bytes: int) -> Layout:
    """See Lay: each tensor's bytes lie one behind the other."""
    return arrangement(iteration, plan, len(iteration.tensors), n_bytes)


TRIALS = 5
BYTES_A_SECOND = 30e9  # at which pages pass from array to array


def fitted(iteration: Iteration, place: Placement, n_bytes: int, bandwidth: Bandwidth,
           n_arranged: int) -> tuple[Plan, Layout]:
    """A plan within a limit, and a layout. Tensors in one memory leave gaps. If these exceed the limit, plans for less
    memory are tried; one is used if it takes no longer than passing pages from tensor to tensor would. Raises
    MemoryTooSmallError if there is no plan within the limit.

    Args:
        n_arranged: so many tensors, the first, may lie in one memory.
    """
    first = plan = place(iteration, n_bytes, bandwidth)
    resident_bytes(iteration, plan, n_bytes)
    passed = sum(tensor.n_bytes * len(visits) for tensor, visits in zip(
        iteration.tensors[:n_arranged], occupied(iteration, first), strict=False))  # to tensors elsewhere
    most = predict(iteration, first, bandwidth).seconds + passed / BYTES_A_SECOND
    target = n_bytes
    for _ in range(TRIALS):
        layout = arrangement(iteration, plan, n_arranged, n_bytes)
        if layout.n_bytes <= n_bytes and predict(iteration, plan, bandwidth).seconds <= most:
            return plan, layout
        target -= 2 * max(layout.n_bytes - n_bytes, 1)  # a plan for less is rarely shorter by all of it
        try:
            plan = place(iteration, target, bandwidth)
        except MemoryTooSmallError:
            break
    resident = max(resident_bytes(iteration, first), default=0)
    return first, Layout(None, resident, resident)  # every tensor with addresses of its own


Fit = tuple[Plan, Layout]

CLOSER = 0.97  # of one target of plans, the next, or less
TARGETS, REFINEMENTS = 12, 2  # targets at most, and further ones between the last two
NEAR = 1.005  # times the fastest plan without gaps: no more is looked for
LENT = (0.8, 0.6, 0.4, 0.2, 0.0)  # parts of the free memory that are lent to arrays on their way, if all is too much
MOVING = ("auto", "move")  # the placements that may move everything


def fitted_together(iteration: Iteration, place: Placement, n_bytes: int, bandwidth: Bandwidth,
                    lay: Lay = in_one_piece) -> tuple[Plan, Layout]:
    """A plan within a limit, and a layout of all tensors in one memory. If gaps between them exceed the limit, tensors
    on their way are lent less memory, and plans for less are tried, for targets in geometric progression until one
    fits, then for some between that and the one before; at last one that offloads everything. The fastest is used.
    Raises MemoryTooSmallError if there is no plan within the limit."""
    search = _Targets(iteration, place, n_bytes, bandwidth, lay)
    layout = search.tried(n_bytes)
    with suppress(MemoryTooSmallError):
        search.descend(layout)
    if not search.found and place in [PLACEMENTS[name] for name in MOVING]:
        everything = [Choice.MOVE] * len(iteration.tensors)
        search.found = _lending_less(iteration, everything, (n_bytes, n_bytes), bandwidth, lay)
    if not search.found:
        raise MemoryTooSmallError(f"arrays in one piece of memory leave gaps, and need more than the {n_bytes:,} bytes "
                                  "that are left for them")
    return search.best()


@dataclass
class _Targets:
    """Plans for several targets.

    Attributes:
        found: those whose tensors lie within the limit.
        hoped: the least seconds of any plan so far, whether its tensors do or not.
    """

    iteration: Iteration
    place: Placement
    n_bytes: int
    bandwidth: Bandwidth
    lay: Lay
    found: list[Fit] = field(default_factory=list)
    hoped: float = inf

    def descend(self, layout: Layout) -> None:
        """Lower the target until its plan fits; then look between the last two. No more is looked for once a plan is
        nearly as fast as one without gaps. Raises MemoryTooSmallError if there is no plan for a target. ``layout``: of
        the plan for the whole limit."""
        above = target = self.n_bytes
        for _ in range(TARGETS):
            if layout.n_bytes <= self.n_bytes or self._is_enough():
                break
            above, target = target, int(target * min(CLOSER, sqrt(self.n_bytes / layout.n_bytes)))
            layout = self.tried(target)
        for _ in range(REFINEMENTS):
            if self._is_enough():
                break
            middle = (target + above) // 2
            fits = self.tried(middle).n_bytes <= self.n_bytes
            target, above = (middle, above) if fits else (target, middle)

    def tried(self, target: int) -> Layout:
        """The layout of a target's plan. If it exceeds the limit, less memory is lent."""
        plan = self.place(self.iteration, target, self.bandwidth)
        resident_bytes(self.iteration, plan, target)
        layout = self.lay(self.iteration, plan, self.n_bytes)
        self.hoped = min(self.hoped, self._seconds((plan, layout)))
        if layout.n_bytes <= self.n_bytes:
            self.found.append((plan, layout))
        else:
            limits = target, self.n_bytes
            self.found += _lending_less(self.iteration, plan.wanted, limits, self.bandwidth, self.lay)
        return layout

    def best(self) -> Fit:
        return min(self.found, key=self._seconds)

    def _is_enough(self) -> bool:
        return bool(self.found) and self._seconds(self.best()) <= NEAR * self.hoped

    def _seconds(self, fit: Fit) -> float:
        return predict(self.iteration, fit[0], self.bandwidth).seconds


def least_together(iteration: Iteration, lay: Lay = in_one_piece) -> int:
    """The least limit for which there surely is a plan in one memory: everything is offloaded, and fetched just in
    time."""
    least = least_bytes(iteration)
    plan = schedule(iteration, [Choice.MOVE] * len(iteration.tensors), least, Bandwidth(1.0, 1.0), 0.0)
    return lay(iteration, plan, least).n_bytes


def _lending_less(iteration: Iteration, choices: Sequence[Choice], limits: tuple[int, int], bandwidth: Bandwidth,
                  lay: Lay) -> list[Fit]:
    """The plan with these choices that lends most, of those whose tensors lie within a limit; none if there is none.
    ``limits``: of what is there at once, and of the layout."""
    for lent in LENT:
        plan = schedule(iteration, choices, limits[0], bandwidth, lent)
        layout = lay(iteration, plan, limits[1])
        if layout.n_bytes <= limits[1]:
            return [(plan, layout)]
    return []
