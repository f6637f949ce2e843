"""Gathers scattered rows into one buffer, and back: compiled, and run without the interpreter's lock (GIL)."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled


@compiled
def gather_runs(values: np.ndarray, runs: np.ndarray, buffer: np.ndarray) -> None:
    """Copy runs of elements.

    Args:
        values: source, flat.
        runs: int64 (n_runs, 3), rows of (offset in values, offset in buffer, n_elems).
        buffer: destination, flat.
    """
    for r in range(len(runs)):
        source, target, n_elems = runs[r]
        buffer[target : target + n_elems] = values[source : source + n_elems]


@compiled
def scatter_runs(values: np.ndarray, runs: np.ndarray, buffer: np.ndarray) -> None:
    """The inverse of ``gather_runs``: copy the buffer's runs into ``values``."""
    for r in range(len(runs)):
        target, source, n_elems = runs[r]
        values[target : target + n_elems] = buffer[source : source + n_elems]
