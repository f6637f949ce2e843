"""Elementwise kernels on flat arrays, one pass each. They release the interpreter's lock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.parts import in_parts


def relu_forward(x: np.ndarray, y: np.ndarray, slope: float) -> None:
    """y = x where x > 0, slope · x elsewhere. y may be x."""
    if slope == 0:
        in_parts(_rectify, (x, y))
    else:
        in_parts(_leaky, (x, y), x.dtype.type(slope))


def relu_backward(y: np.ndarray, gy: np.ndarray, gx: np.ndarray, slope: float) -> None:
    """gx = gy where y > 0, slope · gy elsewhere. gx may be gy; y is the layer's input or output (equal signs)."""
    in_parts(_leaky_back, (y, gy, gx), gy.dtype.type(slope))


def add_relu(a: np.ndarray, b: np.ndarray, y: np.ndarray, slope: float) -> None:
    """y = a + b where that is above 0, slope · (a + b) elsewhere. y may be a."""
    in_parts(_add_relu, (a, b, y), y.dtype.type(slope))


def add_up(xs: Sequence[np.ndarray], y: np.ndarray, signs: np.ndarray | None = None) -> None:
    """y = ((x0 + x1) + x2) + ... for two or more flat arrays, up to four a pass. y may be x0.

    Where ``signs`` are given, y is 0 where they are not above 0.
    """
    in_parts(_SUMS[min(len(xs), max(_SUMS))], (*xs[:max(_SUMS)], y))
    if len(xs) > max(_SUMS):
        add_up([y, *xs[max(_SUMS):]], y)
    if signs is not None:
        relu_backward(signs, y, y, 0)


def mask_scale(x: np.ndarray, mask: np.ndarray, scale: float, y: np.ndarray) -> None:
    """y = x · scale where mask is true, 0 elsewhere. y may be x."""
    in_parts(_mask_scale, (x, mask, y), x.dtype.type(scale))


def _rectify(x: np.ndarray, y: np.ndarray) -> None:
    np.maximum(x, 0, out=y)


@compiled
def _leaky(x: np.ndarray, y: np.ndarray, slope: float) -> None:
    for i in range(x.size):
        y[i] = x[i] if x[i] > 0 else slope * x[i]


@compiled
def _leaky_back(y: np.ndarray, gy: np.ndarray, gx: np.ndarray, slope: float) -> None:
    for i in range(y.size):
        gx[i] = gy[i] if y[i] > 0 else slope * gy[i]


@compiled
def _add_relu(a: np.ndarray, b: np.ndarray, y: np.ndarray, slope: float) -> None:
    for i in range(y.size):
        value = a[i] + b[i]
        y[i] = value if value > 0 else slope * value


@compiled
def _add_three(a: np.ndarray, b: np.ndarray, c: np.ndarray, y: np.ndarray) -> None:
    for i in range(y.size):
        y[i] = (a[i] + b[i]) + c[i]


@compiled
def _add_four(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray, y: np.ndarray) -> None:
    for i in range(y.size):
        y[i] = ((a[i] + b[i]) + c[i]) + d[i]


_SUMS = {2: np.add, 3: _add_three, 4: _add_four}  # by the number of arrays that one pass adds up


@compiled
def _mask_scale(x: np.ndarray, mask: np.ndarray, y: np.ndarray, scale: float) -> None:
    for i in range(x.size):
        y[i] = x[i] * scale if mask[i] else x.dtype.type(0)
