"""The random numbers that crops and mirrorings take, the same whichever rank and thread uses them."""

from __future__ import annotations

import numpy as np


class Draws:
    """The raw random numbers of visits: visit v of a layer with k draws a visit has numbers v*k .. v*k + k - 1.

    The stream is MT19937 from the layer's own seed, as in Caffe, whose one reader takes them in the order of visits;
    so any number of ranks and threads crops and mirrors as one process of Caffe does.

    Args:
        seed: uint32.
        n_per_visit: draws a visit takes; may be 0.
    """

    def __init__(self, seed: int, n_per_visit: int) -> None:
        self._n, self._next = n_per_visit, 0
        self._generator = np.random.MT19937()
        self._generator._legacy_seeding(seed)

    def take(self, visits: np.ndarray) -> np.ndarray:
        """The draws of these visits, uint32 (n, n_per_visit). They must ascend, from call to call too (ValueError)."""
        if self._n == 0 or len(visits) == 0:
            return np.zeros((len(visits), self._n), np.uint32)
        first, end = int(visits[0]), int(visits[-1]) + 1
        if first < self._next:
            raise ValueError(f"visits must ascend: visit {first} was asked for after visit {self._next - 1}")
        self._generator.random_raw((first - self._next) * self._n, output=False)
        draws: np.ndarray = self._generator.random_raw((end - first) * self._n).astype(np.uint32).reshape(-1, self._n)
        self._next = end
        chosen: np.ndarray = draws[visits - first]
        return chosen
