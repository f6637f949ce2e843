"""The placements that ``-placement`` names: which tensors are kept, offloaded and recomputed."""

from __future__ import annotations

from collections.abc import Callable, Collection

from scaffe.memory.plan.greedy import Price, Ways, least_bytes, within
from scaffe.memory.plan.plan import Choice, MemoryTooSmallError, Plan
from scaffe.memory.plan.schedule import schedule
from scaffe.memory.plan.search import Search
from scaffe.memory.problem.iteration import Bandwidth, Iteration


def pinned(iteration: Iteration, n_bytes: int) -> set[int]:
    """GeePS's Algorithm 1: the tensors that stay in memory; all others pass through buffers of twice what the largest
    step needs of them; by number (Cui et al., EuroSys 2016, section 3.3).

    As in the paper, buffers for twice the peak come first. Local data that are used at the peak are then pinned, as
    long as that leaves room for the smaller buffers; then further local data, in the order of their use, while they
    fit. Parameters and histories come last. Data that are written before they are read are not fetched, and those that
    nobody reads again, or that have not changed, are not offloaded (the paper's no_fetch and no_save). Raises
    MemoryTooSmallError if the limit is below twice the peak, and pinning does not help."""
    stays: set[int] = set()
    while True:
        peak, step = _peak(iteration, stays)
        users = [i for i in iteration.used_in[step] if i not in stays and not iteration.tensors[i].is_persistent]
        fits = [i for i in users if _total(iteration, {*stays, i}) <= n_bytes]
        if not fits:
            break
        stays.add(max(fits, key=lambda i: iteration.tensors[i].n_bytes))
    if _total(iteration, stays) > n_bytes:
        raise MemoryTooSmallError(f"-placement geeps needs buffers of twice the peak, {2 * peak:,} bytes; the limit "
                                  f"for activations is {n_bytes:,}")
    for number in sorted(range(len(iteration.tensors)), key=lambda i: iteration.tensors[i].is_persistent):
        if _total(iteration, {*stays, number}) <= n_bytes:
            stays.add(number)
    return stays


def _total(iteration: Iteration, stays: Collection[int]) -> int:
    return sum(iteration.tensors[i].n_bytes for i in stays) + 2 * _peak(iteration, stays)[0]


def _peak(iteration: Iteration, stays: Collection[int]) -> tuple[int, int]:
    n_bytes = [0] * len(iteration.seconds)
    for number, tensor in enumerate(iteration.tensors):
        if number not in stays:
            for step in (step for used in tensor.uses for step in used):
                n_bytes[step] += tensor.n_bytes
    most = max(n_bytes, default=0)
    return most, n_bytes.index(most) if n_bytes else 0


MOVING: Ways = (Choice.LATE, Choice.MOVE)
LATE_OR_MOVE = Price(MOVING, 1.0)
RECOMPUTING = Price((Choice.RECOMPUTE,), 1.0)
SHARES = (0.0, 0.1, 0.3, 1.0)  # from all moves are hidden to none is
PRICES = tuple(Price((*ways, Choice.RECOMPUTE), share) for ways in ((Choice.MOVE,), MOVING) for share in SHARES)
WHILE_IDLE = tuple(Price((Choice.BEHIND, *MOVING, Choice.RECOMPUTE), share, counts_idle=True) for share in SHARES)


def auto(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """Offload or recompute, tensor by tensor, whichever takes less time that computing does not hide.

    Recomputing is Chen et al.'s (2016). Which tensor is better offloaded is decided as in Capuchin (ASPLOS 2020), by
    what the predicted iteration gains: first greedily, then by trying other choices of a few tensors at a time. Where
    the backing store is reached both ways at once, as over a card's link, iterations are short. There it counts how
    long tensors lie idle, and what computing again checkpoint by checkpoint would take.
    """
    least = least_bytes(iteration)
    if least > n_bytes:
        raise MemoryTooSmallError(f"{n_bytes:,} bytes for activations are too few; the least are {least:,}")
    search = Search(iteration, n_bytes, bandwidth)
    best = min((within(iteration, n_bytes, bandwidth, price) for price in PRICES), key=search.seconds)
    if not bandwidth.at_once:
        best = search.improved(best)
    elif search.seconds(best) > search.enough:
        best = search.threshold_accepting(min((best, *search.found(WHILE_IDLE)), key=search.seconds))
    return schedule(iteration, best, n_bytes, bandwidth)


def move(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """Offload whatever does not fit; recompute nothing."""
    return schedule(iteration, within(iteration, n_bytes, bandwidth, LATE_OR_MOVE), n_bytes, bandwidth)


def recompute(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """Recompute whatever does not fit; offload nothing."""
    search = Search(iteration, n_bytes, bandwidth)
    found = search.found((RECOMPUTING,)) or [within(iteration, n_bytes, bandwidth, RECOMPUTING)]  # which says why
    return schedule(iteration, min(found, key=search.seconds), n_bytes, bandwidth)


def geeps(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """GeePS's Algorithm 1 (Cui et al., EuroSys 2016, 3.3): offload what is not ``pinned``."""
    stays = pinned(iteration, n_bytes)
    choices = [Choice.KEEP if number in stays else Choice.MOVE for number in range(len(iteration.tensors))]
    return schedule(iteration, choices, n_bytes, bandwidth)


Placement = Callable[[Iteration, int, Bandwidth], Plan]
PLACEMENTS: dict[str, Placement] = {"auto": auto, "geeps": geeps, "move": move, "recompute": recompute}
