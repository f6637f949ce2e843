"""The steps and differences of gradients that L-BFGS keeps: which vectors they are, and which step is worth keeping."""

from __future__ import annotations

LEAST_CURVATURE = 1e-10
"""A pair is kept if s·y is more than this share of |s| |y|: the inverse Hessian then stays positive definite."""


class Pairs:
    """Names of the pairs (s, y) on the shards, the oldest first; the vectors of a pair that goes are used again.

    Args:
        history: how many pairs are kept at most.

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
        """The pairs, the oldest first."""
        return list(self._kept)

    @property
    def next(self) -> tuple[str, str]:
        """Where the next pair is to be made."""
        return self._spare[0]

    def take(self, ss: float, sy: float, yy: float) -> bool:
        """Keep the pair that has been made in ``next`` if its curvature is enough; else count it as skipped.

        Args:
            ss, sy, yy: the inner products of s and y.
        """
        if not sy > LEAST_CURVATURE * (ss * yy) ** 0.5:
            self.n_skipped += 1
            return False
        self._kept.append(self._spare.pop(0))
        if len(self._kept) > self.history:
            self._spare.append(self._kept.pop(0))
        return True

    def restore(self) -> None:
        """Keep the pair in ``next`` as it is, when a run goes on that had kept it."""
        self._kept.append(self._spare.pop(0))

    def clear(self) -> None:
        """Drop all pairs."""
        self.n_cleared += 1
        self._spare += self._kept
        self._kept = []
