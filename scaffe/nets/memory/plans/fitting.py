"""A plan together with where its arrays lie: within a limit, and if possible so that no page is given back."""

from __future__ import annotations

from scaffe.nets.memory.plans.check import resident_bytes
from scaffe.nets.memory.plans.iteration import Bandwidth, Iteration
from scaffe.nets.memory.plans.layout import Layout, apart, arrangement, occupied
from scaffe.nets.memory.plans.placements import Placement
from scaffe.nets.memory.plans.plan import MemoryTooSmallError, Plan
from scaffe.nets.memory.plans.predict import predict

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
