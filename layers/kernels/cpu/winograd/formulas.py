"""The paper's four small matrices, each times a few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.jit import compiled

TILE, TAPS = 4, 3  # along an axis: outputs of a tile, weights
TWO, FOUR, FIVE, EIGHT = np.float32(2), np.float32(4), np.float32(5), np.float32(8)
QUARTER, SIXTH, TWELFTH, TWENTY_FOURTH = np.float32(1 / 4), np.float32(1 / 6), np.float32(1 / 12), np.float32(1 / 24)


@compiled(inline="always")
def into(a: float, b: float, c: float, d: float, e: float, f: float) -> tuple[Any, ...]:
    """Bᵀ times six numbers."""
    return (FOUR * a - FIVE * c + e, d + e - FOUR * (b + c), FOUR * (b - c) - d + e, TWO * (d - b) - c + e,
            TWO * (b - d) - c + e, FOUR * b - FIVE * d + f)


@compiled(inline="always")
def out_of(a: float, b: float, c: float, d: float, e: float, f: float) -> tuple[Any, ...]:
    """Aᵀ times six numbers."""
    even, odd, even2, odd2 = b + c, b - c, d + e, d - e
    return a + even + even2, odd + TWO * odd2, even + FOUR * even2, odd + EIGHT * odd2 + f


@compiled(inline="always")
def spread(a: float, b: float, c: float, d: float) -> tuple[Any, ...]:
    """A times four numbers."""
    even, odd, even2, odd2 = a + c, b + d, a + FOUR * c, TWO * (b + FOUR * d)
    return a, even + odd, even - odd, even2 + odd2, even2 - odd2, d


@compiled(inline="always")
def filtered(a: float, b: float, c: float) -> tuple[Any, ...]:
    """G times three numbers."""
    outer, middle, even, odd = SIXTH * (a + c), SIXTH * b, TWENTY_FOURTH * a + SIXTH * c, TWELFTH * b
    return QUARTER * a, -outer - middle, middle - outer, even + odd, even - odd, c


@compiled(inline="always")
def collected(a: float, b: float, c: float, d: float, e: float, f: float) -> tuple[Any, ...]:
    """Gᵀ times six numbers."""
    even, even2 = SIXTH * (b + c), d + e
    return (QUARTER * a - even + TWENTY_FOURTH * even2, SIXTH * (c - b) + TWELFTH * (d - e),
            SIXTH * even2 - even + f)
