"""Elementwise kernels on flat arrays of the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.layers.kernels.cuda.launch import element, run_flat, wide
from scaffe.layers.kernels.extents import BITS, expect_elems, expect_words

MOST_TOGETHER = 4  # arrays that one pass adds up


def relu_forward(x: Any, y: Any, slope: float) -> None:
    """y = x where x > 0, slope · x elsewhere. y may be x."""
    expect_elems(x.size, y)
    run_flat("elementwise", "relu_forward", x.dtype, x.size, (x, y, wide(x.dtype).type(slope)))


def relu_backward(y: Any, gy: Any, gx: Any, slope: float) -> None:
    """gx = gy where y > 0, slope · gy elsewhere. gx may be gy; y is the layer's input or output (equal signs)."""
    expect_elems(gy.size, y, gx)
    run_flat("elementwise", "relu_backward", gy.dtype, gy.size, (y, gy, gx, wide(gy.dtype).type(slope)))


def save_sign_mask(y: Any, mask: Any) -> None:
    """Set the bits of the elements above 0, and clear all others; see ``scaffe.layers.kernels.extents``."""
    expect_words(y.size, mask)
    run_flat("elementwise", "save_sign_mask", y.dtype, y.size, (y, mask), per_thread=BITS)


def relu_backward_mask(mask: Any, gy: Any, gx: Any, slope: float) -> None:
    """gx = gy where the bit is set, slope · gy elsewhere. gx may be gy."""
    expect_elems(gy.size, gx)
    expect_words(gy.size, mask)
    run_flat("elementwise", "relu_backward_mask", gy.dtype, gy.size, (mask, gy, gx, wide(gy.dtype).type(slope)),
             per_thread=BITS)


def add_relu(a: Any, b: Any, y: Any, slope: float) -> None:
    """y = a + b where that is above 0, slope · (a + b) elsewhere. y may be a."""
    expect_elems(y.size, a, b)
    run_flat("elementwise", "add_relu", y.dtype, y.size, (a, b, y, wide(y.dtype).type(slope)))


def add_up(xs: Sequence[Any], y: Any, signs: Any = None) -> None:
    """y = ((x0 + x1) + x2) + ... for two or more flat arrays, up to four a pass. y may be x0.

    Where ``signs`` are given, y is 0 where they are not above 0.
    """
    expect_elems(y.size, *xs, signs)
    together, rest = [*xs[:MOST_TOGETHER]], xs[MOST_TOGETHER:]
    together += [None] * (MOST_TOGETHER - len(together))
    run_flat("elementwise", "add_up", y.dtype, y.size, (*together, None if rest else signs, y))
    if rest:
        add_up([y, *rest], y, signs)


def mask_scale(x: Any, mask: Any, scale: float, y: Any) -> None:
    """y = x · scale where mask is true, 0 elsewhere. y may be x."""
    expect_elems(x.size, mask, y)
    run_flat("elementwise", "mask_scale", x.dtype, x.size, (x, mask, y, wide(x.dtype).type(scale)))


def add_scaled(x: Any, y: Any, scale: float = 1.0, keep: float = 1.0) -> None:
    """y = scale · x + keep · y. If keep is 0, the old y is not read."""
    real = wide(x.dtype).type
    expect_elems(x.size, y)
    run_flat("elementwise", "add_scaled", x.dtype, x.size, (x, y, real(scale), real(keep)))


def convert(source: Any, target: Any) -> None:
    """Copy a flat array to one of another type, rounding to nearest."""
    if element(source.dtype) == element(target.dtype):
        target[...] = source
        return
    expect_elems(source.size, target)
    run_flat("conversion", "convert", target.dtype, source.size, (source, target), other=np.dtype(source.dtype))
