"""Half precision by the book, on float32 arrays: the nearest number that the type has, ties to the even one."""

import numpy as np


def to_fp16(values):
    """IEEE binary16, by numpy."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def to_bf16(values):
    """Of the two neighbours that share the upper 16 bits' form, the nearer one; in float64, where all are exact."""
    low = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    high = ((values.view(np.uint32) & np.uint32(0xFFFF0000)) + np.uint32(0x10000)).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = values.astype(np.float64)
        above = np.where(np.isinf(high), np.copysign(2.0**128, exact), high.astype(np.float64))
        to_low, to_high = np.abs(exact - low), np.abs(above - exact)
    low_is_even = (low.view(np.uint32) >> np.uint32(16)) & np.uint32(1) == 0
    nearest = np.where((to_low < to_high) | ((to_low == to_high) & low_is_even), low, high)
    return np.where(np.isfinite(values), nearest, values)


ROUND = {"fp16": to_fp16, "bf16": to_bf16}
