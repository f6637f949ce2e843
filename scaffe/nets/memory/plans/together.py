"""A plan whose arrays all lie in one piece of memory, at addresses that stay: where pages cannot pass on (devices)."""

from __future__ import annotations

from scaffe.nets.memory.plans.check import resident_bytes
from scaffe.nets.memory.plans.iteration import Bandwidth, Iteration
from scaffe.nets.memory.plans.layout import Layout, arrangement
from scaffe.nets.memory.plans.needs import least_bytes
from scaffe.nets.memory.plans.placements import PLACEMENTS, Placement
from scaffe.nets.memory.plans.plan import Choice, MemoryTooSmallError, Plan
from scaffe.nets.memory.plans.schedule import schedule

TRIALS = 12
MOVING = ("auto", "move")  # the placements that may move everything


def fitted_together(iteration: Iteration, place: Placement, n_bytes: int, bandwidth: Bandwidth) -> tuple[Plan, Layout]:
    """A plan within a limit, and a layout. Where gaps between arrays exceed the limit, plans for so much less are
    tried; at last the one that moves everything.

    Args:
        iteration: the arrays and steps.
        place: makes plans.
        n_bytes: the limit.
        bandwidth: of the slow memory.

    Raises:
        MemoryTooSmallError: there is no plan within the limit.
    """
    target, n_parts = n_bytes, len(iteration.parts)
    for _ in range(TRIALS):
        try:
            plan = place(iteration, target, bandwidth)
        except MemoryTooSmallError:
            if target == n_bytes:
                raise
            break
        resident_bytes(iteration, plan, target)
        layout = arrangement(iteration, plan, n_parts)
        if layout.n_bytes <= n_bytes:
            return plan, layout
        target -= 2 * max(layout.n_bytes - n_bytes, 1)  # a plan for less is rarely shorter by all of it
    plan, layout = _tightest(iteration)
    if layout.n_bytes > n_bytes or place not in [PLACEMENTS[name] for name in MOVING]:
        raise MemoryTooSmallError(f"arrays in one piece of memory leave gaps, and need more than the {n_bytes:,} bytes "
                                  "that are left for them")
    return plan, layout


def least_together(iteration: Iteration) -> int:
    """The least limit for which there surely is a plan."""
    return _tightest(iteration)[1].n_bytes


def _tightest(iteration: Iteration) -> tuple[Plan, Layout]:
    """Everything moves, and comes back just in time."""
    plan = schedule(iteration, [Choice.MOVE] * len(iteration.parts), least_bytes(iteration), Bandwidth(1.0, 1.0))
    return plan, arrangement(iteration, plan, len(iteration.parts))
