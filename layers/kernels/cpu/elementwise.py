"""Elementwise kernels on flat arrays, in one pass each, and the readers' pixels (uint8) to the net's numbers. They
release the interpreter's lock.

They compute in the arrays' type, and on bfloat16 arrays in float32. A kernel whose result is an operand's memory gets
None for that operand, since the compiler does not vectorize loops over arrays that may overlap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.bfloat16 import real, stored
from scaffe.jit.loops import MIRROR_PADDING, convert_pixels, mirror_row
from scaffe.layers.kernels.cpu.arrays import as_bits, wide
from scaffe.layers.kernels.cpu.threads.parts import LEAST_ELEMS, in_parts, in_units
from scaffe.layers.kernels.extents import BITS, LANES, TOGETHER, expect_elems, expect_words


def relu_forward(x: np.ndarray, y: np.ndarray, slope: float) -> None:
    """y = x where x > 0, slope · x elsewhere. y may be x."""
    if slope == 0 and x.dtype == y.dtype and y.dtype.kind == "f":
        _into(y, _rectify, (x,))
    else:
        _into(y, _leaky, (x,), slope)


def relu_backward(y: np.ndarray, gy: np.ndarray, gx: np.ndarray, slope: float) -> None:
    """gx = gy where y > 0, slope · gy elsewhere. gx may be gy; y is the layer's input or output."""
    _into(gx, _leaky_back, (gy, y), slope)


def add_relu(a: np.ndarray, b: np.ndarray, y: np.ndarray, slope: float) -> None:
    """y = a + b where that is above 0, slope · (a + b) elsewhere. y may be a."""
    _into(y, _add_relu, (a, b), slope)


def add_up(xs: Sequence[np.ndarray], y: np.ndarray, signs: np.ndarray | None = None) -> None:
    """y = ((x0 + x1) + x2) + ... for two or more flat arrays, up to four a pass. y may be x0.

    If ``signs`` is given, of y's shape, y is 0 where it is not above 0.
    """
    first, *others = xs
    if signs is not None and len(others) == 1:
        _into(y, _add_two_where, (first, *others, signs))
        return
    while others:
        taken, others = others[:3], others[3:]
        _into(y, _SUMS[len(taken)], (first, *taken))
        first = y
    if signs is not None:
        relu_backward(signs, y, y, 0)


def mask_scale(x: np.ndarray, mask: np.ndarray, scale: float, y: np.ndarray) -> None:
    """y = x · scale where mask is true, 0 elsewhere. y may be x."""
    _into(y, _mask_scale, (x, mask), scale)


def copy(x: np.ndarray, y: np.ndarray) -> None:
    """y = x, both flat, converted between float32 and bfloat16 if they differ."""
    in_parts(_copy, (x, y))


def are_one(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether both begin at the same address."""
    return a.ctypes.data == b.ctypes.data


def _into(y: np.ndarray, kernel: Callable[..., Any], xs: tuple[np.ndarray, ...], *numbers: float) -> None:
    """Call ``kernel(y, *others, first, *numbers)``, where ``first``, the first operand, is None if it is y."""
    first, *others = xs
    typed = [wide(y.dtype).type(number) for number in numbers]
    if are_one(first, y):
        in_parts(kernel, (y, *others), None, *typed)
    else:
        in_parts(kernel, (y, *others, first), *typed)


@compiled
def _rectify(y: np.ndarray, x: np.ndarray | None) -> None:
    for i in range(y.size):
        value = y[i] if x is None else x[i]
        y[i] = 0 if value <= 0 else value  # a NaN stays one


@compiled
def _leaky(y: np.ndarray, x: np.ndarray | None, slope: float) -> None:
    for i in range(y.size):
        value = real(y[i] if x is None else x[i])
        y[i] = stored(value if value > 0 else slope * value, y[i])


@compiled
def _leaky_back(gx: np.ndarray, y: np.ndarray, gy: np.ndarray | None, slope: float) -> None:
    for i in range(gx.size):
        grad = real(gx[i] if gy is None else gy[i])
        gx[i] = stored(grad if real(y[i]) > 0 else slope * grad, gx[i])


@compiled
def _add_relu(y: np.ndarray, b: np.ndarray, a: np.ndarray | None, slope: float) -> None:
    for i in range(y.size):
        value = real(y[i] if a is None else a[i]) + real(b[i])
        y[i] = stored(value if value > 0 else slope * value, y[i])


@compiled
def _add_two(y: np.ndarray, b: np.ndarray, a: np.ndarray | None) -> None:
    for i in range(y.size):
        y[i] = stored(real(y[i] if a is None else a[i]) + real(b[i]), y[i])


@compiled
def _add_two_where(y: np.ndarray, b: np.ndarray, signs: np.ndarray, a: np.ndarray | None) -> None:
    for i in range(y.size):
        value = real(y[i] if a is None else a[i]) + real(b[i])
        y[i] = stored(value if real(signs[i]) > 0 else 0 * value, y[i])


@compiled
def _add_three(y: np.ndarray, b: np.ndarray, c: np.ndarray, a: np.ndarray | None) -> None:
    for i in range(y.size):
        y[i] = stored((real(y[i] if a is None else a[i]) + real(b[i])) + real(c[i]), y[i])


@compiled
def _add_four(y: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray, a: np.ndarray | None) -> None:
    for i in range(y.size):
        y[i] = stored(((real(y[i] if a is None else a[i]) + real(b[i])) + real(c[i])) + real(d[i]), y[i])


_SUMS = {1: _add_two, 2: _add_three, 3: _add_four}  # by the number of arrays added to the first in a pass


@compiled
def _mask_scale(y: np.ndarray, mask: np.ndarray, x: np.ndarray | None, scale: float) -> None:
    for i in range(y.size):
        value = real(y[i] if x is None else x[i]) * scale
        y[i] = stored(value if mask[i] else 0 * scale, y[i])


@compiled
def _copy(x: np.ndarray, y: np.ndarray) -> None:
    for i in range(x.size):
        y[i] = stored(real(x[i]), y[i])


def save_sign_mask(y: np.ndarray, mask: np.ndarray) -> None:
    """Set the bits of the elements of y, flat, above 0 in words (n_words(y.size),), and clear all others."""
    expect_words(y.size, mask)
    in_units(_save_mask, TOGETHER, y.size, y.size // LEAST_ELEMS, as_bits(y), mask)


def relu_backward_mask(mask: np.ndarray, gy: np.ndarray, gx: np.ndarray, slope: float) -> None:
    """gx = gy where ``save_sign_mask`` has set the bit, slope · gy elsewhere; flat. gx may be gy."""
    expect_elems(gy.size, gx)
    expect_words(gy.size, mask)
    source = None if are_one(gy, gx) else as_bits(gy)
    in_units(_back, TOGETHER, gx.size, gx.size // LEAST_ELEMS, mask, source, as_bits(gx), wide(gx.dtype).type(slope))


@compiled
def _save_mask(start: int, stop: int, y: np.ndarray, mask: np.ndarray) -> None:
    for first in range(start, stop, TOGETHER):
        here, values = mask[first // BITS:first // BITS + LANES], y[first:first + TOGETHER]
        here[:] = 0
        for j in range(-(-values.size // LANES)):
            bit, run = np.uint32(1 << j), values[LANES * j:LANES * (j + 1)]
            for w in range(run.size):
                here[w] |= bit if real(run[w]) > 0 else np.uint32(0)


@compiled
def _back(start: int, stop: int, mask: np.ndarray, gy: np.ndarray | None, gx: np.ndarray, slope: float) -> None:
    for first in range(start, stop, TOGETHER):
        here, out = mask[first // BITS:first // BITS + LANES], gx[first:first + TOGETHER]
        for j in range(-(-out.size // LANES)):
            bit, run = np.uint32(1 << j), out[LANES * j:LANES * (j + 1)]
            grad = run if gy is None else gy[first + LANES * j:first + LANES * j + run.size]
            for w in range(run.size):
                value = real(run[w] if gy is None else grad[w])
                run[w] = stored(value if here[w] & bit else slope * value, run[w])


class Pixels:
    """y = (pixel - mean) · scale, mirrored where asked for, with the bits that readers would compute.

    Args:
        change: has ``mean``, float32, 1-D: a mean image (row, column, channel), or a number for each channel;
            ``row_stride`` and ``column_stride``, elements of it from one row, or column, to the next; ``scale``.
    """

    def __init__(self, change: Any) -> None:
        self._mean, self._row_stride, self._scale = change.mean, change.row_stride, np.float32(change.scale)
        self._one_row = np.empty(0, np.float32)
        self._mirrored, self._width = self._mean, 0
        if change.row_stride:
            rows = self._mean.reshape(-1, change.row_stride // change.column_stride, change.column_stride)
            self._mirrored, self._width = np.ascontiguousarray(rows[:, ::-1]).reshape(-1), rows.shape[1]

    def run(self, pixels: np.ndarray, places: np.ndarray, y: np.ndarray) -> None:
        """See ``backend.Pixels``."""
        n, height, width, n_channels = pixels.shape
        expect_elems(pixels.size, y)
        expect_elems(3 * n, places)
        if not (self._row_stride or places[:, 2].any()):  # an image is then one long row
            height, width = 1, height * width
        in_units(_change, 1, n, pixels.size // LEAST_ELEMS, pixels.reshape(-1), (height, width, n_channels), places,
                 self._means(width), (self._row_stride, self._width), wide(y.dtype).type(self._scale),
                 as_bits(y))

    def _means(self, width: int) -> tuple[np.ndarray, np.ndarray]:
        """The mean in (row, column, channel) order, and mirrored; for one number a channel, a row as an image's."""
        if self._row_stride:
            return self._mean, self._mirrored
        if self._one_row.size < width * self._mean.size:
            self._one_row = np.tile(self._mean, width)
        return self._one_row, self._one_row


@compiled
def _change(start: int, stop: int, pixels: np.ndarray, shape: tuple[int, int, int], places: np.ndarray,
            mean: tuple[np.ndarray, np.ndarray], mean_rows: tuple[int, int], scale: float, y: np.ndarray) -> None:
    """Convert images [start, stop). ``mean_rows``: elements from one row of the mean to the next, pixels of a row."""
    height, width, n_channels = shape
    n_row = width * n_channels
    row = np.empty(n_row + MIRROR_PADDING, np.uint8)
    for i in range(start, stop):
        mirrored = places[i, 2] != 0
        first = mean_rows[1] - places[i, 1] - width if mirrored else places[i, 1]
        for h in range(height):
            at = (i * height + h) * n_row
            mean_at = (places[i, 0] + h) * mean_rows[0] + first * n_channels if mean_rows[0] else 0
            if mirrored:
                mirror_row(pixels, at, width, n_channels, row)
                convert_pixels(row, 0, mean[1], mean_at, scale, y, at, n_row)
            else:
                convert_pixels(pixels, at, mean[0], mean_at, scale, y, at, n_row)
