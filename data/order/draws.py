"""The random numbers of crops and mirroring. A sample gets the same ones on whatever rank or thread it is read."""

from __future__ import annotations

import numpy as np


class Draws:
    """Random numbers by visit (see ``visits``): with k numbers a visit, visit v has v*k .. v*k + k - 1 of the stream.

    The stream is MT19937 with the layer's seed. Caffe's single reader takes the same numbers visit after visit, so
    any number of ranks and threads crops and mirrors as one process of Caffe does.

    Args:
        seed: uint32, the layer's.
        n_per_visit: numbers that a visit takes; may be 0.
    """

    def __init__(self, seed: int, n_per_visit: int) -> None:
        self._n, self._next = n_per_visit, 0
        self._generator = np.random.MT19937()
        self._generator._legacy_seeding(seed)

    def take(self, visits: np.ndarray) -> np.ndarray:
        """The numbers of some visits.

        Args:
            visits: int64 (n,), ascending, and above those of earlier calls.

        Returns:
            uint32 (n, n_per_visit).

        Raises:
            ValueError: the visits do not come after those of earlier calls.
        """
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
