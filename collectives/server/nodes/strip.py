"""Runs of elements of an array, taken as one piece."""

from __future__ import annotations

import numpy as np

from scaffe.collectives.server.rows.runs import gather_runs, scatter_runs


class Strip:
    """Some runs of an array, one after the other, as if they were one piece.

    Args:
        starts, lengths: int64 (n_runs,), offset in the array and elements of each run. Neighbours become one run.

    Attributes:
        n_elems: of all runs.
    """

    def __init__(self, starts: np.ndarray, lengths: np.ndarray) -> None:
        first = np.flatnonzero(starts[1:] != starts[:-1] + lengths[:-1]) + 1
        first = np.concatenate([[0], first]) if len(starts) else np.zeros(0, np.int64)
        self.n_elems = int(lengths.sum())
        self._starts = starts[first]
        self._offsets = np.append((np.cumsum(lengths) - lengths)[first], self.n_elems)

    @classmethod
    def all_of(cls, array: np.ndarray) -> Strip:
        """The whole of an array."""
        return cls(np.zeros(1, np.int64), np.array([array.size]))

    def slice(self, at: int, n_elems: int) -> slice | None:
        """Where elements [at, at + n_elems) lie in the array, if in one piece; else None."""
        run = int(np.searchsorted(self._offsets, at, "right")) - 1 if len(self._starts) > 1 else 0
        if at + n_elems > self._offsets[run + 1]:
            return None
        start = int(self._starts[run]) + at - int(self._offsets[run])
        return slice(start, start + n_elems)

    def gather(self, array: np.ndarray, at: int, buffer: np.ndarray) -> None:
        """Copy elements [at, at + len(buffer)) of the strip from the array to the buffer."""
        gather_runs(array, self._within(at, at + buffer.size), buffer)

    def scatter(self, buffer: np.ndarray, at: int, array: np.ndarray) -> None:
        """The inverse of ``gather``."""
        scatter_runs(array, self._within(at, at + buffer.size), buffer)

    def _within(self, at: int, stop: int) -> np.ndarray:
        """The runs clipped to [at, stop), int64 (n_runs, 3): offset in the array, offset from ``at`` on, length."""
        runs = np.s_[np.searchsorted(self._offsets, at, "right") - 1 : np.searchsorted(self._offsets, stop, "left")]
        offsets = self._offsets[:-1][runs]
        first = np.maximum(offsets, at)
        last = np.minimum(self._offsets[1:][runs], stop)
        return np.stack([self._starts[runs] + first - offsets, first - at, last - first], axis=1)
