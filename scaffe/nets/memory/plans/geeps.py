"""GeePS's Algorithm 1: which arrays are pinned in fast memory (Cui et al., EuroSys 2016, section 3.3)."""

from __future__ import annotations

from collections.abc import Collection

from scaffe.nets.memory.plans.iteration import Iteration
from scaffe.nets.memory.plans.plan import MemoryTooSmallError


def pinned(iteration: Iteration, n_bytes: int) -> set[int]:
    """The arrays that stay in memory; all others pass through buffers of twice what the largest step needs of them.

    As in the paper: buffers for twice the peak come first; then local data that are used at the peak are pinned as long
    as that leaves room for the smaller buffers; then further local data, in the order of their use, while they fit.
    Parameters and histories come last. Data that are written before they are read are not fetched, and those that
    nobody reads again, or that have not changed, are not saved (the paper's no_fetch and no_save).

    Args:
        iteration: the arrays and steps.
        n_bytes: the limit.

    Returns:
        the pinned arrays, by number.

    Raises:
        MemoryTooSmallError: the limit is below twice the peak, and pinning does not help.
    """
    stays: set[int] = set()
    while True:
        peak, step = _peak(iteration, stays)
        users = [i for i in iteration.used_in[step] if i not in stays and not iteration.parts[i].lasts]
        fits = [i for i in users if _total(iteration, {*stays, i}) <= n_bytes]
        if not fits:
            break
        stays.add(max(fits, key=lambda i: iteration.parts[i].n_bytes))
    if _total(iteration, stays) > n_bytes:
        raise MemoryTooSmallError(f"-placement geeps needs buffers of twice the peak, {2 * peak:,} bytes; the limit "
                                  f"for activations is {n_bytes:,}")
    for number in sorted(range(len(iteration.parts)), key=lambda i: iteration.parts[i].lasts):
        if _total(iteration, {*stays, number}) <= n_bytes:
            stays.add(number)
    return stays


def _total(iteration: Iteration, stays: Collection[int]) -> int:
    """Bytes of the pinned arrays and of the buffers for the others."""
    return sum(iteration.parts[i].n_bytes for i in stays) + 2 * _peak(iteration, stays)[0]


def _peak(iteration: Iteration, stays: Collection[int]) -> tuple[int, int]:
    """The most bytes that a step uses of arrays that are not pinned, and that step."""
    n_bytes = [0] * len(iteration.seconds)
    for number, part in enumerate(iteration.parts):
        if number not in stays:
            for step in (step for used in part.uses for step in used):
                n_bytes[step] += part.n_bytes
    most = max(n_bytes, default=0)
    return most, n_bytes.index(most) if n_bytes else 0
