"""The same small matrices for five taps an axis, F(4x4, 5x5): at the points 0, 1, -1, 2, -2, 1/2, -1/2 and infinity.

Source: Toom and Cook's interpolation, as in Lavin and Gray's appendix; Bᵀ is also that of F(6x6, 3x3).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.winograd.formulas import EIGHT, FIVE, FOUR, QUARTER, TWO

SIXTEEN, HALF, EIGHTH, SIXTEENTH = (np.float32(n) for n in (16, 1 / 2, 1 / 8, 1 / 16))
SPREAD, WIDE, MIDDLE, SLOPE = (np.float32(n) for n in (21 / 4, 17 / 4, 5 / 4, 5 / 2))
ONES, TWOS, HALVES = (np.float32(n) for n in (2 / 9, 1 / 90, 32 / 45))  # one by the product of a point's differences


@compiled(inline="always")
def into(a: float, b: float, c: float, d: float, e: float, f: float, g: float, h: float) -> tuple[Any, ...]:
    """Bᵀ times eight numbers."""
    even, odd = c + g - WIDE * e, b + f - WIDE * d
    even2, odd2 = g + QUARTER * c - MIDDLE * e, HALF * b - SLOPE * d + TWO * f
    even3, odd3 = g + FOUR * c - FIVE * e, TWO * b - SLOPE * d + HALF * f
    return (a - g + SPREAD * (e - c), even + odd, even - odd, even2 + odd2, even2 - odd2, even3 + odd3, even3 - odd3,
            h - b + SPREAD * (d - f))


@compiled(inline="always")
def out_of(a: float, b: float, c: float, d: float, e: float, f: float, g: float, h: float) -> tuple[Any, ...]:
    """Aᵀ times eight numbers."""
    even, odd, even2, odd2, even3, odd3 = b + c, b - c, d + e, d - e, f + g, f - g
    return (a + even + even2 + even3, odd + TWO * odd2 + HALF * odd3, even + FOUR * even2 + QUARTER * even3,
            odd + EIGHT * odd2 + EIGHTH * odd3 + h)


@compiled(inline="always")
def spread(a: float, b: float, c: float, d: float) -> tuple[Any, ...]:
    """A times four numbers."""
    even, odd, even2, odd2 = a + c, b + d, a + FOUR * c, TWO * (b + FOUR * d)
    even3, odd3 = a + QUARTER * c, HALF * (b + QUARTER * d)
    return a, even + odd, even - odd, even2 + odd2, even2 - odd2, even3 + odd3, even3 - odd3, d


@compiled(inline="always")
def filtered(a: float, b: float, c: float, d: float, e: float) -> tuple[Any, ...]:
    """G times five numbers."""
    even, odd = ONES * (a + c + e), ONES * (b + d)
    even2, odd2 = TWOS * (a + FOUR * c + SIXTEEN * e), TWOS * (TWO * b + EIGHT * d)
    even3, odd3 = HALVES * (a + QUARTER * c + SIXTEENTH * e), HALVES * (HALF * b + EIGHTH * d)
    return a, -even - odd, odd - even, even2 + odd2, even2 - odd2, even3 + odd3, even3 - odd3, e


@compiled(inline="always")
def collected(a: float, b: float, c: float, d: float, e: float, f: float, g: float, h: float) -> tuple[Any, ...]:
    """Gᵀ times eight numbers."""
    even, odd = ONES * (b + c), ONES * (b - c)
    even2, odd2, even3, odd3 = TWOS * (d + e), TWOS * (d - e), HALVES * (f + g), HALVES * (f - g)
    return (a - even + even2 + even3, TWO * odd2 - odd + HALF * odd3, FOUR * even2 - even + QUARTER * even3,
            EIGHT * odd2 - odd + EIGHTH * odd3, SIXTEEN * even2 - even + SIXTEENTH * even3 + h)
