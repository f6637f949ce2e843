"""How a plan is chosen, by name: ``-placement``."""

from __future__ import annotations

from collections.abc import Callable

from scaffe.nets.memory.plans.geeps import pinned
from scaffe.nets.memory.plans.greedy import Ways, within
from scaffe.nets.memory.plans.iteration import Bandwidth, Iteration
from scaffe.nets.memory.plans.needs import least_bytes
from scaffe.nets.memory.plans.plan import Choice, MemoryTooSmallError, Plan
from scaffe.nets.memory.plans.schedule import schedule
from scaffe.nets.memory.plans.search import Search

LATE_OR_MOVE: Ways = (Choice.LATE, Choice.MOVE)
SHARES = (0.0, 0.1, 0.3, 1.0)


def auto(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """Move or compute again, array by array, by what takes less time behind computing.

    Recomputing is Chen et al.'s (2016); which array is better moved is decided as in Capuchin (ASPLOS 2020), by what
    the predicted iteration gains, first greedily, then by trying other choices of a few arrays at a time.
    """
    least = least_bytes(iteration)
    if least > n_bytes:
        raise MemoryTooSmallError(f"{n_bytes:,} bytes for activations are too few; the least are {least:,}")
    search = Search(iteration, n_bytes, bandwidth)
    best = min((within(iteration, n_bytes, bandwidth, (*moving, Choice.AGAIN), share)
                for moving in ((Choice.MOVE,), LATE_OR_MOVE) for share in SHARES), key=search.seconds)
    return schedule(iteration, search.improved(best), n_bytes, bandwidth)


def move(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """Move whatever does not fit; compute nothing again."""
    return schedule(iteration, within(iteration, n_bytes, bandwidth, LATE_OR_MOVE, 1.0), n_bytes, bandwidth)


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
