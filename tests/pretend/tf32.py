"""What tensor cores and fast algorithms do to the precision of float32 products."""

from __future__ import annotations

import numpy as np

MANTISSA_BITS = 10  # of TF32; float32 has 23
WINOGRAD_ERROR = 2e-5  # of the largest result (Lavin and Gray, CVPR 2016)


def rounded_to_tf32(a: np.ndarray) -> np.ndarray:
    """Numbers of float32's range with the mantissa of TF32, to nearest, ties to even. Type and shape stay."""
    bits = a.astype(np.float32).view(np.uint32)
    lost = np.uint32(23 - MANTISSA_BITS)
    half = np.uint32((1 << (23 - MANTISSA_BITS - 1)) - 1)
    kept = (bits + half + (bits >> lost & np.uint32(1))) >> lost << lost
    return np.where(np.isfinite(a), kept.view(np.float32), a).astype(a.dtype)


def with_winograd_error(a: np.ndarray) -> np.ndarray:
    """A convolution's results as an algorithm gives them that transforms its tiles: wrong by a part of the largest."""
    size = np.abs(a).max(initial=0)
    signs = np.where(np.arange(a.size).reshape(a.shape) % 2, 1, -1)
    return a + signs * WINOGRAD_ERROR * size
