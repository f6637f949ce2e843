"""Winograd's small matrices (Lavin and Gray, arXiv:1509.09308) times a few numbers: F(4x4, 3x3) and F(4x4, 5x5).

Compiled code applies them to columns of flat arrays; see ``vectorized``, whose first argument is the number of weights
along an axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.jit.simd import vectorized

TILE = 4  # outputs of a tile along an axis
TWO, FOUR, FIVE, EIGHT = np.float32(2), np.float32(4), np.float32(5), np.float32(8)
QUARTER, SIXTH, TWELFTH, TWENTY_FOURTH = np.float32(1 / 4), np.float32(1 / 6), np.float32(1 / 12), np.float32(1 / 24)


def input_transform(a: float, b: float, c: float, d: float, e: float, f: float) -> tuple[Any, ...]:
    """Bᵀ times six numbers."""
    return (FOUR * a - FIVE * c + e, d + e - FOUR * (b + c), FOUR * (b - c) - d + e, TWO * (d - b) - c + e,
            TWO * (b - d) - c + e, FOUR * b - FIVE * d + f)


def output_transform(a: float, b: float, c: float, d: float, e: float, f: float) -> tuple[Any, ...]:
    """Aᵀ times six numbers."""
    even, odd, even2, odd2 = b + c, b - c, d + e, d - e
    return a + even + even2, odd + TWO * odd2, even + FOUR * even2, odd + EIGHT * odd2 + f


def output_gradient_transform(a: float, b: float, c: float, d: float) -> tuple[Any, ...]:
    """A times four numbers."""
    even, odd, even2, odd2 = a + c, b + d, a + FOUR * c, TWO * (b + FOUR * d)
    return a, even + odd, even - odd, even2 + odd2, even2 - odd2, d


def filter_transform(a: float, b: float, c: float) -> tuple[Any, ...]:
    """G times three numbers."""
    outer, middle, even, odd = SIXTH * (a + c), SIXTH * b, TWENTY_FOURTH * a + SIXTH * c, TWELFTH * b
    return QUARTER * a, -outer - middle, middle - outer, even + odd, even - odd, c


def filter_gradient_transform(a: float, b: float, c: float, d: float, e: float, f: float) -> tuple[Any, ...]:
    """Gᵀ times six numbers."""
    even, even2 = SIXTH * (b + c), d + e
    return (QUARTER * a - even + TWENTY_FOURTH * even2, SIXTH * (c - b) + TWELFTH * (d - e),
            SIXTH * even2 - even + f)


# Five taps an axis, by Toom and Cook's interpolation at the points 0, 1, -1, 2, -2, 1/2, -1/2 and infinity, as in Lavin
# and Gray's appendix; this Bᵀ is also that of F(6x6, 3x3).
SIXTEEN, HALF, EIGHTH, SIXTEENTH = (np.float32(n) for n in (16, 1 / 2, 1 / 8, 1 / 16))
SPREAD, WIDE, MIDDLE, SLOPE = (np.float32(n) for n in (21 / 4, 17 / 4, 5 / 4, 5 / 2))
ONES, TWOS, HALVES = (np.float32(n) for n in (2 / 9, 1 / 90, 32 / 45))  # one by the product of a point's differences


def input_transform_5(a: float, b: float, c: float, d: float, e: float, f: float, g: float,
                      h: float) -> tuple[Any, ...]:
    """Bᵀ times eight numbers."""
    even, odd = c + g - WIDE * e, b + f - WIDE * d
    even2, odd2 = g + QUARTER * c - MIDDLE * e, HALF * b - SLOPE * d + TWO * f
    even3, odd3 = g + FOUR * c - FIVE * e, TWO * b - SLOPE * d + HALF * f
    return (a - g + SPREAD * (e - c), even + odd, even - odd, even2 + odd2, even2 - odd2, even3 + odd3, even3 - odd3,
            h - b + SPREAD * (d - f))


def output_transform_5(a: float, b: float, c: float, d: float, e: float, f: float, g: float,
                       h: float) -> tuple[Any, ...]:
    """Aᵀ times eight numbers."""
    even, odd, even2, odd2, even3, odd3 = b + c, b - c, d + e, d - e, f + g, f - g
    return (a + even + even2 + even3, odd + TWO * odd2 + HALF * odd3, even + FOUR * even2 + QUARTER * even3,
            odd + EIGHT * odd2 + EIGHTH * odd3 + h)


def output_gradient_transform_5(a: float, b: float, c: float, d: float) -> tuple[Any, ...]:
    """A times four numbers."""
    even, odd, even2, odd2 = a + c, b + d, a + FOUR * c, TWO * (b + FOUR * d)
    even3, odd3 = a + QUARTER * c, HALF * (b + QUARTER * d)
    return a, even + odd, even - odd, even2 + odd2, even2 - odd2, even3 + odd3, even3 - odd3, d


def filter_transform_5(a: float, b: float, c: float, d: float, e: float) -> tuple[Any, ...]:
    """G times five numbers."""
    even, odd = ONES * (a + c + e), ONES * (b + d)
    even2, odd2 = TWOS * (a + FOUR * c + SIXTEEN * e), TWOS * (TWO * b + EIGHT * d)
    even3, odd3 = HALVES * (a + QUARTER * c + SIXTEENTH * e), HALVES * (HALF * b + EIGHTH * d)
    return a, -even - odd, odd - even, even2 + odd2, even2 - odd2, even3 + odd3, even3 - odd3, e


def filter_gradient_transform_5(a: float, b: float, c: float, d: float, e: float, f: float, g: float,
                                h: float) -> tuple[Any, ...]:
    """Gᵀ times eight numbers."""
    even, odd = ONES * (b + c), ONES * (b - c)
    even2, odd2, even3, odd3 = TWOS * (d + e), TWOS * (d - e), HALVES * (f + g), HALVES * (f - g)
    return (a - even + even2 + even3, TWO * odd2 - odd + HALF * odd3, FOUR * even2 - even + QUARTER * even3,
            EIGHT * odd2 - odd + EIGHTH * odd3, SIXTEEN * even2 - even + SIXTEENTH * even3 + h)


input_columns = vectorized({3: input_transform, 5: input_transform_5})
output_columns = vectorized({3: output_transform, 5: output_transform_5})
output_gradient_columns = vectorized({3: output_gradient_transform, 5: output_gradient_transform_5})
filter_columns = vectorized({3: filter_transform, 5: filter_transform_5})
filter_gradient_columns = vectorized({3: filter_gradient_transform, 5: filter_gradient_transform_5})
