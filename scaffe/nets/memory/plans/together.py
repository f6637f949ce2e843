"""A plan whose arrays all lie in one piece of memory, at addresses that stay: where pages cannot pass on (devices)."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.nets.memory.plans.check import resident_bytes
from scaffe.nets.memory.plans.iteration import Bandwidth, Iteration
from scaffe.nets.memory.plans.layout import Layout, arrangement
from scaffe.nets.memory.plans.needs import least_bytes
from scaffe.nets.memory.plans.placements import PLACEMENTS, Placement
from scaffe.nets.memory.plans.plan import Choice, MemoryTooSmallError, Plan
from scaffe.nets.memory.plans.predict import predict
from scaffe.nets.memory.plans.schedule import schedule

Fit = tuple[Plan, Layout]

TRIALS = 12
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
    for _ in range(TRIALS):
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
