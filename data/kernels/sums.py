"""Sums over many samples."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled


@compiled
def add_samples(pixels: np.ndarray, starts: np.ndarray, sums: np.ndarray) -> None:
    """Add samples up, element by element.

    Args:
        pixels: 1-D uint8 or float32, holds all samples.
        starts: int64 (n,), index of each sample's first element in ``pixels``.
        sums: float64, 1-D, as long as a sample; the samples are added to it.
    """
    for start in starts:
        sample = pixels[start:start + sums.size]
        for k in range(sums.size):
            sums[k] += sample[k]
