"""Rows that lie scattered, into one buffer: compiled, without the interpreter's lock."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled


@compiled
def gather_runs(values: np.ndarray, runs: np.ndarray, buffer: np.ndarray) -> None:
    """Copy runs (element of values, element of buffer, n_elems) from values, flat, to buffer, flat."""
    for r in range(len(runs)):
        source, target, n_elems = runs[r]
        buffer[target : target + n_elems] = values[source : source + n_elems]
