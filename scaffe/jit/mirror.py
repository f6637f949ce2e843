"""Rows of pixels mirrored in compiled code: readers turn them before a net gets them, or its kernels do."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled


@compiled
def mirror_row(row: np.ndarray, n_channels: int) -> None:
    """Mirror a row in place, pixel by pixel."""
    width = row.size // n_channels
    for w in range(width // 2):
        near, far = w * n_channels, (width - 1 - w) * n_channels
        for c in range(n_channels):
            row[near + c], row[far + c] = row[far + c], row[near + c]
