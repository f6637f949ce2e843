"""L-BFGS's pairs of steps and gradient differences, and the two-loop recursion on their inner products."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

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
        """Keep the pair in ``next`` as it is: it comes from a snapshot."""
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
        """The inner product of a combination of vectors with one."""
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
