"""Sums over many samples."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled


@compiled
def add_samples(pixels: np.ndarray, starts: np.ndarray, sums: np.ndarray) -> None:
    """Add samples of sums.size elements each, from ``starts`` in ``pixels``, to ``sums`` (float64, 1-D)."""
    for start in starts:
        sample = pixels[start:start + sums.size]
        for k in range(sums.size):
            sums[k] += sample[k]
