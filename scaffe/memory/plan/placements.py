"""The placements that ``-placement`` names: which tensors are kept, offloaded and recomputed."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import inf

from scaffe.memory.plan.greedy import Ways, least_bytes, within
from scaffe.memory.plan.plan import Choice, MemoryTooSmallError, Plan
from scaffe.memory.plan.schedule import least_seconds, placed, predict, schedule, visits_within
from scaffe.memory.problem.iteration import Bandwidth, Iteration, Tensor


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


MOST_DRAWN, MOST_IN_VAIN = 2000, 600  # changes that are tried, and those in a row that gain nothing
MOST_VISITS = 200_000  # changes times tensors: the time to judge a change grows with the number of tensors
MOST_CHANGED = 3  # tensors at once: one may have to be offloaded for what another gains
ENOUGH = 1.005  # times the iteration where nothing moves: no more is looked for
ROUNDED = 1 - 1e-9  # of a lower bound, for sums that are rounded in another order
TOLL = 0.1  # of a move's seconds: what it takes from layers that compute meanwhile, by the memory's speed


@dataclass(frozen=True)
class Search:
    """A search among the choices that keep within a limit."""

    iteration: Iteration
    n_bytes: int
    bandwidth: Bandwidth
    judged: set[tuple[Choice, ...]] = field(default_factory=set)

    def seconds(self, choices: Sequence[Choice], below: float = inf) -> float:
        """Seconds of an iteration with these choices, and the toll of its moves; infinite if they do not fit.

        Where ``below`` is given, choices that cannot take less are infinite, too: a lower bound says so before they are
        placed, or they were judged in an earlier call. ``below`` only falls from call to call.
        """
        if below < inf:
            n_judged = len(self.judged)
            self.judged.add(tuple(choices))
            if len(self.judged) == n_judged:
                return inf
        try:
            visits = visits_within(self.iteration, choices, self.n_bytes)
        except MemoryTooSmallError:
            return inf
        least, moving = least_seconds(self.iteration, visits, self.bandwidth)
        if (least + TOLL * moving) * ROUNDED >= below:
            return inf
        plan = placed(self.iteration, choices, visits, self.n_bytes, self.bandwidth)
        found = predict(self.iteration, plan, self.bandwidth)
        return found.seconds + TOLL * (found.offloaded / self.bandwidth.out + found.fetched / self.bandwidth.back)

    def improved(self, choices: Sequence[Choice]) -> list[Choice]:
        """Change the choices of a few tensors at a time, drawn at random, and keep what makes the iteration shorter
        (random descent). Equal inputs have equal draws, and so equal choices."""
        draw, best, found, in_vain = random.Random(0), self.seconds(choices), list(choices), 0
        enough = sum(self.iteration.seconds) * ENOUGH
        free = [(number, _choices_of(tensor)) for number, tensor in enumerate(self.iteration.tensors)
                if tensor.forward or tensor.is_persistent]
        for _ in range(min(MOST_DRAWN, MOST_VISITS // len(self.iteration.tensors)) if free else 0):
            if best <= enough or in_vain == MOST_IN_VAIN:
                break
            trial = list(found)
            for number, able in draw.choices(free, k=draw.randint(1, MOST_CHANGED)):
                trial[number] = draw.choice(able)
            seconds, in_vain = self.seconds(trial, best), in_vain + 1
            if seconds < best:
                best, found, in_vain = seconds, trial, 0
        return found


def _choices_of(tensor: Tensor) -> list[Choice]:
    found = [Choice.KEEP, Choice.MOVE]
    if tensor.recompute is not None:
        found.append(Choice.RECOMPUTE)
    if tensor.is_persistent and tensor.may_be_offloaded:
        found.append(Choice.BEHIND)
    if tensor.is_persistent and tensor.late:
        found += [Choice.LATE, Choice.BETWEEN]
    return found


LATE_OR_MOVE: Ways = (Choice.LATE, Choice.MOVE)
SHARES = (0.0, 0.1, 0.3, 1.0)


def auto(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """Offload or recompute, tensor by tensor, whichever takes less time that computing does not hide.

    Recomputing is Chen et al.'s (2016). Which tensor is better offloaded is decided as in Capuchin (ASPLOS 2020), by
    what the predicted iteration gains: first greedily, then by trying other choices of a few tensors at a time.
    """
    least = least_bytes(iteration)
    if least > n_bytes:
        raise MemoryTooSmallError(f"{n_bytes:,} bytes for activations are too few; the least are {least:,}")
    search = Search(iteration, n_bytes, bandwidth)
    best = min((within(iteration, n_bytes, bandwidth, (*moving, Choice.RECOMPUTE), share)
                for moving in ((Choice.MOVE,), LATE_OR_MOVE) for share in SHARES), key=search.seconds)
    return schedule(iteration, search.improved(best), n_bytes, bandwidth)


def move(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """Offload whatever does not fit; recompute nothing."""
    return schedule(iteration, within(iteration, n_bytes, bandwidth, LATE_OR_MOVE, 1.0), n_bytes, bandwidth)


def recompute(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """Recompute whatever does not fit; offload nothing."""
    return schedule(iteration, within(iteration, n_bytes, bandwidth, (Choice.RECOMPUTE,), 1.0), n_bytes, bandwidth)


def geeps(iteration: Iteration, n_bytes: int, bandwidth: Bandwidth) -> Plan:
    """GeePS's Algorithm 1 (Cui et al., EuroSys 2016, 3.3): offload what is not ``pinned``."""
    stays = pinned(iteration, n_bytes)
    choices = [Choice.KEEP if number in stays else Choice.MOVE for number in range(len(iteration.tensors))]
    return schedule(iteration, choices, n_bytes, bandwidth)


Placement = Callable[[Iteration, int, Bandwidth], Plan]
PLACEMENTS: dict[str, Placement] = {"auto": auto, "geeps": geeps, "move": move, "recompute": recompute}
