"""The L-BFGS direction from inner products alone (Chen, Wang, Zhou, "Large-scale L-BFGS using MapReduce", NIPS 2014).

The two-loop recursion (Nocedal & Wright, algorithm 7.4) makes a combination of the 2m + 1 vectors s₁..sₘ, y₁..yₘ and g.
With all their inner products known, its factors are arithmetic on scalars: the vectors need not be here. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np


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

    H's scale is s·y / y·y of the newest pair (Nocedal & Wright, 7.20).

    Args:
        dot: the inner products of all vectors that are named here.
        pairs: names of (s, y), steps and differences of gradients, the oldest first; each with s·y > 0.
        g: name of the gradient.

    Returns:
        factor by name; for g alone {g: -1}.
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
