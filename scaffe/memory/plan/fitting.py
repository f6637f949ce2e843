"""A plan together with where its arrays lie: within a limit, and if possible so that no page is given back."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.memory.plan.cost_model import predict
from scaffe.memory.plan.greedy import least_bytes
from scaffe.memory.plan.packing import Layout, apart, arrangement, occupied
from scaffe.memory.plan.placements import PLACEMENTS, Placement
from scaffe.memory.plan.plan import Choice, MemoryTooSmallError, Plan, resident_bytes
from scaffe.memory.plan.schedule import schedule
from scaffe.memory.problem.iteration import Bandwidth, Iteration

TRIALS = 5
BYTES_A_SECOND = 30e9  # at which pages pass from array to array


def fitted(iteration: Iteration, place: Placement, n_bytes: int, bandwidth: Bandwidth,
           n_arranged: int) -> tuple[Plan, Layout]:
    """A plan within a limit, and a layout. Arrays in one memory leave gaps there: where these exceed the limit, plans
    for so much less are tried, which are worth it if they take less longer than pages take to pass on.

    Args:
        iteration: the arrays and steps.
        place: makes plans.
        n_bytes: the limit.
        bandwidth: of the slow memory.
        n_arranged: so many arrays, the first, may lie in one memory.

    Raises:
        MemoryTooSmallError: there is no plan within the limit.
    """
    first = plan = place(iteration, n_bytes, bandwidth)
    resident_bytes(iteration, plan, n_bytes)
    most = predict(iteration, first, bandwidth).seconds + _passed_bytes(iteration, first, n_arranged) / BYTES_A_SECOND
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
    return first, apart(iteration, first)


def _passed_bytes(iteration: Iteration, plan: Plan, n_arranged: int) -> int:
    """Bytes of memory that come to arrays which have addresses of their own, in an iteration."""
    visits = occupied(iteration, plan)[:n_arranged]
    return sum(part.n_bytes * len(each) for part, each in zip(iteration.parts, visits, strict=False))


Fit = tuple[Plan, Layout]

TRIALS_TOGETHER = 12
LENT = (0.8, 0.6, 0.4, 0.2, 0.0)  # parts of the free memory that are lent to arrays on their way, if all is too much
MOVING = ("auto", "move")  # the placements that may move everything


def fitted_together(iteration: Iteration, place: Placement, n_bytes: int, bandwidth: Bandwidth) -> tuple[Plan, Layout]:
    """A plan within a limit, and a layout. Where gaps between arrays exceed the limit, arrays on their way are lent
    less memory, and plans for less are tried; at last the one that moves everything. The shortest counts.

    Args:
        iteration: the arrays and steps.
        place: makes plans.
        n_bytes: the limit.
        bandwidth: of the slow memory.

    Raises:
        MemoryTooSmallError: there is no plan within the limit.
    """
    target, found = n_bytes, list[Fit]()
    for _ in range(TRIALS_TOGETHER):
        try:
            plan = place(iteration, target, bandwidth)
        except MemoryTooSmallError:
            if target == n_bytes:
                raise
            break
        resident_bytes(iteration, plan, target)
        layout = arrangement(iteration, plan, len(iteration.parts), n_bytes)
        if layout.n_bytes <= n_bytes:
            found.append((plan, layout))
            break
        found += _lending_less(iteration, plan.wanted, target, n_bytes, bandwidth)
        target -= max((layout.n_bytes - n_bytes) // 2, 1)
    if not found and place in [PLACEMENTS[name] for name in MOVING]:
        found = _lending_less(iteration, _everything(iteration), n_bytes, n_bytes, bandwidth)
    if not found:
        raise MemoryTooSmallError(f"arrays in one piece of memory leave gaps, and need more than the {n_bytes:,} bytes "
                                  "that are left for them")
    return min(found, key=lambda fit: predict(iteration, fit[0], bandwidth).seconds)


def least_together(iteration: Iteration) -> int:
    """The least limit for which there surely is a plan: everything moves, and comes back just in time."""
    least = least_bytes(iteration)
    plan = schedule(iteration, _everything(iteration), least, Bandwidth(1.0, 1.0), 0.0)
    return arrangement(iteration, plan, len(iteration.parts), least).n_bytes


def _lending_less(iteration: Iteration, choices: Sequence[Choice], target: int, n_bytes: int,
                  bandwidth: Bandwidth) -> list[Fit]:
    """The plan for a target with these choices that lends most, of those whose arrays lie within a limit, if any do."""
    for lent in LENT:
        plan = schedule(iteration, choices, target, bandwidth, lent)
        layout = arrangement(iteration, plan, len(iteration.parts), n_bytes)
        if layout.n_bytes <= n_bytes:
            return [(plan, layout)]
    return []


def _everything(iteration: Iteration) -> list[Choice]:
    return [Choice.MOVE] * len(iteration.parts)
