"""L-BFGS as a series of requests: the coordinator's side of DistBelief's Sandblaster (Dean et al., NIPS 2012, 4.2).

It knows names of vectors and scalars, never a vector: its requests are answered by shards and replicas. No MPI here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from scaffe.collectives.server.vectors import commands as c
from scaffe.training.lbfgs.line_search import Point, Rules, Wolfe
from scaffe.training.lbfgs.objective import TRIAL, Objective, Requests, Run, X

LEAST_CURVATURE = 1e-10
"""A pair is kept if s·y is more than this share of |s| |y|: the inverse Hessian then stays positive definite."""


class Pairs:
    """Names of the pairs (s, y) on the shards, the oldest first; the vectors of a dropped pair are used again.

    Attributes:
        n_skipped: pairs without enough curvature, which were not kept.
        n_cleared: how often all pairs were dropped.
    """

    def __init__(self, history: int) -> None:
        self.history = history
        self.n_skipped = self.n_cleared = 0
        self._kept: list[tuple[str, str]] = []
        self._spare = [(f"s{i}", f"y{i}") for i in range(history + 1)]  # one more: the next is made before one goes

    @property
    def kept(self) -> list[tuple[str, str]]:
        return list(self._kept)

    @property
    def next(self) -> tuple[str, str]:
        """Where the next pair is to be made."""
        return self._spare[0]

    def take(self, ss: float, sy: float, yy: float) -> bool:
        """Keep the pair in ``next`` if its inner products show curvature enough; else count it as skipped."""
        if not sy > LEAST_CURVATURE * (ss * yy) ** 0.5:
            self.n_skipped += 1
            return False
        self._kept.append(self._spare.pop(0))
        if len(self._kept) > self.history:
            self._spare.append(self._kept.pop(0))
        return True

    def restore(self) -> None:
        self._kept.append(self._spare.pop(0))

    def clear(self) -> None:
        self.n_cleared += 1
        self._spare += self._kept
        self._kept = []


class Gram:
    """Inner products by the names of two vectors, in either order."""

    def __init__(self) -> None:
        self._dots: dict[frozenset[str], float] = {}

    def put(self, rows: Sequence[str], columns: Sequence[str], dots: np.ndarray) -> None:
        """Take over the inner products of rows with columns, (rows, columns)."""
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                self._dots[frozenset((row, column))] = float(dots[i, j])

    def forget(self, names: Iterable[str]) -> None:
        """Drop all products with these vectors: they have changed."""
        gone = set(names)
        self._dots = {pair: dot for pair, dot in self._dots.items() if not pair & gone}

    def __call__(self, a: str, b: str) -> float:
        """The inner product of two vectors. Raises KeyError if it is not known."""
        return self._dots[frozenset((a, b))]

    def of(self, factors: Mapping[str, float], name: str) -> float:
        return sum(factor * self(other, name) for other, factor in factors.items())


def direction(dot: Gram, pairs: Sequence[tuple[str, str]], g: str) -> dict[str, float]:
    """The factors of -H g, where H is L-BFGS's inverse Hessian.

    H's scale is s·y / y·y of the newest pair (Nocedal & Wright, 7.20). Returns factor by name; for g alone {g: -1}.

    Args:
        pairs: names of (s, y), steps and differences of gradients, the oldest first; each with s·y > 0.
    """
    factors = {name: 0.0 for pair in pairs for name in pair} | {g: -1.0}
    alphas = {}
    for s, y in reversed(pairs):
        alphas[s] = dot.of(factors, s) / dot(s, y)
        factors[y] -= alphas[s]
    if pairs:
        s, y = pairs[-1]
        scale = dot(s, y) / dot(y, y)
        factors = {name: scale * factor for name, factor in factors.items()}
    for s, y in pairs:
        factors[s] += alphas[s] - dot.of(factors, y) / dot(s, y)
    return factors


GRADIENTS = ("g0", "g1", "g2")  # at x, at the best trial and at the present one


def most_vectors(history: int, objective: Objective) -> int:
    """The most vectors on the shards, with so many pairs; a new pair is made before the oldest is dropped."""
    return len(objective.vectors) + len(GRADIENTS) + 2 * (history + 1)


@dataclass
class Progress:
    """What the optimiser has done.

    Attributes:
        n_steps, n_evaluations: accepted steps, and passes over a batch.
        step: factor of the last accepted step; 0 if the last search found none.
        slope_norm: Euclidean norm of what the objective falls along at x.
    """

    n_steps: int = 0
    n_evaluations: int = 0
    n_trials: int = 0
    step: float = 0.0
    slope_norm: float = float("nan")


@dataclass
class Lbfgs:
    """The optimiser's state. Vectors on the shards: x, which must be there, and what it makes itself.

    Attributes:
        tolerance: the end is where the norm of what the objective falls along is at most so many times that of x, or
            times 1 if x is shorter.
        value, loss: the objective at x, and the loss in it; nan before ``renew``.
        has_converged: whether the tolerance is met, or no step could be found that makes the objective fall.
    """

    objective: Objective
    pairs: Pairs
    rules: Rules
    tolerance: float = 0.0
    value: float = float("nan")
    loss: float = float("nan")
    progress: Progress = field(default_factory=Progress)
    has_converged: bool = False
    _gram: Gram = field(default_factory=Gram)
    _length: float = 1.0
    _g: str = GRADIENTS[0]
    _downhill: str = GRADIENTS[0]

    def renew(self) -> Requests:
        self.value, self.loss, _ = yield from self._evaluate(X, self._g)
        self._downhill, made = self.objective.downhill(self._g)
        basis = self._basis()
        fresh = [*basis[:-1], self._downhill]
        dots, squares = yield Run((*made, c.Dots(tuple(fresh), tuple(basis)), c.Norm(X)))  # of loaded pairs too
        self._gram.put(fresh, basis, dots)
        self._length = max(float(squares[0]) ** 0.5, 1.0)
        self.has_converged = False

    def step(self, length: float) -> Requests:
        """Search along the quasi-Newton direction and move x there. ``length``: Euclidean length of the first trial's
        step where there is no pair yet; later the first trial is the whole quasi-Newton step."""
        while not (yield from self._search(length)):
            self.has_converged = not self.pairs.kept
            if self.has_converged:
                return
            self.pairs.clear()

    def _search(self, length: float) -> Requests:
        factors, slope = self._direction()
        norm = self._gram(self._downhill, self._downhill) ** 0.5
        self.progress.slope_norm, self.progress.step = norm, 0.0
        if not norm > self.tolerance * self._length:
            self.has_converged = True
            return True
        yield Run(self.objective.aim(factors, self._downhill))
        search = self.objective.search(Point(0.0, self.value, slope), self.rules)
        last, losses = yield from self._try(search, 1.0 if self.pairs.kept else length / norm)
        if not search.low.step:
            return False
        yield from self._accept(search.low, last)
        self.loss = losses[search.low.step]
        return True

    def _direction(self) -> tuple[dict[str, float], float]:
        """The direction's factors and slope; the steepest descent, and all pairs dropped, if it is none of descent."""
        factors = direction(self._gram, self.pairs.kept, self._downhill)
        slope = self._gram.of(factors, self._downhill)
        if not slope < 0 and self.pairs.kept:
            self.pairs.clear()
            return self._direction()
        return factors, slope

    def _try(self, search: Wolfe, first: float) -> Requests:
        """Evaluate what the search asks for. Returns the last step, and the loss at every step.

        The gradient at the best point so far is kept, so that it need not be computed again.
        """
        self._free = [name for name in GRADIENTS if name != self._g]
        trials = search.trials(first)
        losses: dict[float, float] = {}
        step: float | None = next(trials, None)
        last = 0.0
        while step is not None:
            yield Run(self.objective.reach(step))
            value, losses[step], slope = yield from self._evaluate(TRIAL, self._free[0])
            self.progress.n_trials += 1
            last, before = step, search.low.step
            try:
                step = trials.send((value, slope))
            except StopIteration:
                step = None
            if search.low.step == last != before:
                self._free.reverse()  # the best one is the last now, the next trial goes into the other
        return last, losses

    def _accept(self, found: Point, last: float) -> Requests:
        """Move x, make the pair, and have all inner products that the next direction needs: one round of messages."""
        old, self._g = self._g, self._free[1]
        s, y = self.pairs.next
        self._gram.forget((*GRADIENTS, self._downhill, s, y))
        moved = () if found.step == last else self.objective.reach(found.step)
        pair = (c.Combine((1.0, -1.0), (TRIAL, X), s), c.Combine((1.0, -1.0), (self._g, old), y), c.Copy(TRIAL, X))
        self._downhill, made = self.objective.downhill(self._g)
        basis = [*self._basis(), s, y]
        fresh = (s, y, self._downhill)
        dots, squares = yield Run((*moved, *pair, *made, c.Dots(fresh, tuple(basis)), c.Norm(X)))
        self._gram.put(fresh, basis, dots)
        self._length = max(float(squares[0]) ** 0.5, 1.0)
        self.pairs.take(self._gram(s, s), self._gram(s, y), self._gram(y, y))
        self.value, self.progress.step = found.value, found.step
        self.progress.slope_norm = self._gram(self._downhill, self._downhill) ** 0.5
        self.progress.n_steps += 1

    def _basis(self) -> list[str]:
        return [*(name for pair in self.pairs.kept for name in pair), self._downhill]

    def _evaluate(self, at: str, into: str) -> Requests:
        self.progress.n_evaluations += 1
        return (yield from self.objective.value(at, into))
