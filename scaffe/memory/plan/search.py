"""A search among the choices that keep within a limit: greedily from several beginnings, then by random descent."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import inf

from scaffe.memory.plan.checkpoints import checkpoints, keeping
from scaffe.memory.plan.greedy import Needs, Price, cheapest_first, needs, within
from scaffe.memory.plan.plan import Choice, MemoryTooSmallError
from scaffe.memory.plan.schedule import least_seconds, placed, predict, visits_within
from scaffe.memory.problem.iteration import Bandwidth, Iteration, Tensor

MOST_STARTS = 12  # sets of checkpoints from which choices are looked for
MOST_DRAWN, MOST_IN_VAIN = 2000, 600  # changes that are tried, and those in a row that gain nothing
MOST_THRESHOLD_DRAWS = 4000  # likewise, where worse ones may be kept for a while
MOST_VISITS = 200_000  # changes times tensors: the time to judge a change grows with the number of tensors
MOST_CHANGED = 3  # tensors at once: one may have to be offloaded for what another gains
WORSE = 0.03  # part by which choices may be worse than those before them, at the first change
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

        Where ``below`` is given, choices that do not take less are infinite, too; a lower bound may say so before they
        are placed. So are those that were judged in an earlier call.
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
        plan = placed(self.iteration, choices, visits, self.n_bytes, self.bandwidth, below=below)
        found = predict(self.iteration, plan, self.bandwidth)
        seconds = found.seconds + TOLL * (found.offloaded / self.bandwidth.out + found.fetched / self.bandwidth.back)
        return seconds if seconds < below else inf

    @cached_property
    def enough(self) -> float:
        return sum(self.iteration.seconds) * ENOUGH

    def found(self, prices: Sequence[Price]) -> list[list[Choice]]:
        """Choices within the limit, found greedily: from everything in memory at each price, and from sets of
        checkpoints, those that need least, at the last price. None if there are none."""
        keep = [Choice.KEEP] * len(self.iteration.tensors)
        starts = [(price, keep) for price in prices] + [(prices[-1], start) for start in self._from_checkpoints()]
        found = list[list[Choice]]()
        for price, start in starts:
            with suppress(MemoryTooSmallError):
                choices = within(self.iteration, self.n_bytes, self.bandwidth, price, start)
                found.append(self.kept(choices, price))
        return found

    def _from_checkpoints(self) -> list[list[Choice]]:
        every = (keeping(self.iteration, kept) for kept in checkpoints(self.iteration))
        return sorted(every, key=lambda each: max(needs(self.iteration, each).n_bytes, default=0))[:MOST_STARTS]

    def kept(self, choices: Sequence[Choice], price: Price) -> list[Choice]:
        """Choices within the limit with as much kept as fits, of what costs most per byte first."""
        found, need = list(choices), needs(self.iteration, choices)
        for each in reversed(cheapest_first(self.iteration, self.bandwidth, price)):
            if found[each.number] is each.way and self._may_stay(need, each.number):
                found[each.number] = Choice.KEEP
                trial = needs(self.iteration, found)
                if max(trial.n_bytes) <= self.n_bytes:
                    need = trial
                else:
                    found[each.number] = each.way
        return found

    def _may_stay(self, need: Needs, number: int) -> bool:
        """Whether there is room for a tensor where it lies idle, whatever else changes if it is kept."""
        spans, n_bytes = need.spans[number], self.iteration.tensors[number].n_bytes
        return all(max(need.n_bytes[before[1] + 1:after[0]], default=0) + n_bytes <= self.n_bytes
                   for before, after in pairwise(spans))

    def improved(self, choices: Sequence[Choice]) -> list[Choice]:
        """Change the choices of a few tensors at a time, drawn at random, and keep what makes the iteration shorter
        (random descent). Equal inputs have equal draws, and so equal choices."""
        draw, best, found, in_vain = random.Random(0), self.seconds(choices), list(choices), 0
        for _ in range(self._n_draws(MOST_DRAWN)):
            if best <= self.enough or in_vain == MOST_IN_VAIN:
                break
            trial = self._changed(found, draw)
            seconds, in_vain = self.seconds(trial, best), in_vain + 1
            if seconds < best:
                best, found, in_vain = seconds, trial, 0
        return found

    def threshold_accepting(self, choices: Sequence[Choice]) -> list[Choice]:
        """As ``improved``, but also go on from choices that are worse, by a part that shrinks to nothing (threshold
        accepting: Dueck and Scheuer, Journal of Computational Physics 90, 1990). Returns the best of all."""
        draw, now = random.Random(0), self.seconds(choices)
        best, found, kept = now, list(choices), list(choices)
        n_draws = self._n_draws(MOST_THRESHOLD_DRAWS)
        for i in range(n_draws):
            if best <= self.enough:
                break
            trial = self._changed(found, draw)
            seconds = self.seconds(trial, now * (1 + WORSE * (1 - i / n_draws)))
            if seconds < inf:
                now, found = seconds, trial
            if seconds < best:
                best, kept = seconds, trial
        return kept

    def _n_draws(self, most: int) -> int:
        return min(most, MOST_VISITS // len(self.iteration.tensors)) if self._free else 0

    @cached_property
    def _free(self) -> list[tuple[int, list[Choice]]]:
        return [(number, _choices_of(tensor)) for number, tensor in enumerate(self.iteration.tensors)
                if tensor.forward or tensor.is_persistent]

    def _changed(self, choices: Sequence[Choice], draw: random.Random) -> list[Choice]:
        trial = list(choices)
        for number, able in draw.choices(self._free, k=draw.randint(1, MOST_CHANGED)):
            trial[number] = draw.choice(able)
        return trial


def _choices_of(tensor: Tensor) -> list[Choice]:
    found = [Choice.KEEP, Choice.MOVE]
    if tensor.recompute is not None:
        found.append(Choice.RECOMPUTE)
    if tensor.is_persistent and tensor.may_be_offloaded:
        found.append(Choice.BEHIND)
    if tensor.is_persistent and tensor.late:
        found += [Choice.LATE, Choice.BETWEEN]
    return found
