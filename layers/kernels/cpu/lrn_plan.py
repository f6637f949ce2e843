"""Local response normalisation of channels-last images by numba; oneDNN's kernel for its backward is slow."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.bfloat16 import real, stored
from scaffe.layers.kernels.cpu.arrays import wide
from scaffe.layers.kernels.cpu.threads.parts import in_parts
from scaffe.layers.kernels.cpu.threads.prepared_calls import NativeCalls, prepare_parts
from scaffe.layers.kernels.specs import LrnSpec

BLOCK = 800  # numbers processed at once, which stay in the first-level cache


class Lrn:
    """y = x s^-beta, s = k + alpha / n · sum of squares in the window, centred and cut off at the borders. Across
    channels, backward recomputes s, which would take as much memory as y."""

    def __init__(self, spec: LrnSpec) -> None:
        self.spec, self.reads_y = spec, spec.within
        n, c, *spatial = spec.in_shape
        dtype = wide(spec.dtype)
        number = dtype.type
        self._shape = (n, *spatial, c) if spec.within else (c and n * prod(spatial), max(c, 1))
        self._kept = np.ones(self._shape, dtype) if spec.within else None  # s, for backward
        self._half = spec.half
        self._numbers = number(spec.k), number(spec.alpha / spec.n_window), number(spec.beta)
        self._back_rate = number(2 * spec.alpha * spec.beta / spec.n_window)

    def forward(self, x: np.ndarray, y: np.ndarray) -> None:
        x, y = x.reshape(self._shape), y.reshape(self._shape)
        if self._kept is None:
            in_parts(_across, (x, y), self._half, self._numbers)
            return
        k, rate, beta = self._numbers
        _box_sum(x * x, self._kept, self._half)
        self._kept *= rate
        self._kept += k
        np.multiply(x, self._kept ** -beta, out=y)

    def prepare_calls(self, x: np.ndarray, y: np.ndarray) -> NativeCalls | None:
        if self.spec.within:
            return None
        x, y = x.reshape(self._shape), y.reshape(self._shape)
        return prepare_parts(_across, (x, y), self._half, self._numbers)

    def backward(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """Write gx = gy s^-beta - 2 alpha beta / n · x · sum over the window of gy y / s."""
        x, y, gy, gx = (a.reshape(self._shape) for a in (x, y, gy, gx))
        if self._kept is None:
            in_parts(_across_back, (x, gy, gx), self._half, self._numbers, self._back_rate)
            return
        sums = np.empty_like(self._kept)
        _box_sum(gy * y / self._kept, sums, self._half)
        np.subtract(gy * self._kept ** -self._numbers[2], self._back_rate * x * sums, out=gx)


@compiled(error_model="numpy")
def _across(x: np.ndarray, y: np.ndarray, half: int, numbers: tuple[float, float, float]) -> None:
    """Normalise across channels. Several rows are processed as one long row: short loops do not vectorize, and reading
    what was just stored at another alignment is slow."""
    k, rate, beta = numbers
    n_rows, n_channels = x.shape
    n_together = max(1, BLOCK // n_channels)
    squares = np.zeros(n_together * n_channels, type(beta))
    sums = np.zeros_like(squares)
    is_usual = beta == type(beta)(0.75)
    for first in range(0, n_rows, n_together):
        values, out = x[first:first + n_together].reshape(-1), y[first:first + n_together].reshape(-1)
        _square(values, squares)
        _window_sums(squares, sums, half, n_channels, values.size)
        if is_usual:  # s^-3/4 by square roots, for which processors have instructions
            for i in range(values.size):
                root = np.sqrt(k + rate * sums[i])
                out[i] = stored(real(values[i]) / (root * np.sqrt(root)), out[i])
        else:
            for i in range(values.size):
                out[i] = stored(real(values[i]) * (k + rate * sums[i]) ** -beta, out[i])


@compiled(error_model="numpy")
def _across_back(x: np.ndarray, gy: np.ndarray, gx: np.ndarray, half: int, numbers: tuple[float, float, float],
                 back_rate: float) -> None:
    k, rate, beta = numbers
    one = type(beta)(1)
    n_rows, n_channels = x.shape
    n_together = max(1, BLOCK // n_channels)
    ratios = np.zeros(n_together * n_channels, type(beta))
    sums, powers = np.zeros_like(ratios), np.zeros_like(ratios)
    is_usual = beta == type(beta)(0.75)
    for first in range(0, n_rows, n_together):
        values, grad = x[first:first + n_together].reshape(-1), gy[first:first + n_together].reshape(-1)
        grown = gx[first:first + n_together].reshape(-1)
        _square(values, ratios)
        _window_sums(ratios, sums, half, n_channels, values.size)
        if is_usual:
            for i in range(values.size):
                inverse = one / (k + rate * sums[i])
                root = np.sqrt(inverse)
                powers[i] = root * np.sqrt(root)
                ratios[i] = real(grad[i]) * real(values[i]) * powers[i] * inverse
        else:
            for i in range(values.size):
                s = k + rate * sums[i]
                powers[i] = s ** -beta
                ratios[i] = real(grad[i]) * real(values[i]) * powers[i] / s
        _window_sums(ratios, sums, half, n_channels, values.size)
        for i in range(values.size):
            grown[i] = stored(real(grad[i]) * powers[i] - back_rate * real(values[i]) * sums[i], grown[i])


@compiled(inline="always")
def _square(values: np.ndarray, squares: np.ndarray) -> None:
    for i in range(values.size):
        number = real(values[i])
        squares[i] = number * number


@compiled(inline="always")
def _window_sums(values: np.ndarray, sums: np.ndarray, half: int, n_channels: int, n_elems: int) -> None:
    """sums[i] = values[i - half] + ... + values[i + half] within each row; rows are contiguous."""
    inner = sums[half:]
    if half == 2:  # the usual one, in one pass
        for i in range(n_elems - 4):
            inner[i] = values[i] + values[i + 1] + values[i + 2] + values[i + 3] + values[i + 4]
    else:
        for i in range(n_elems - 2 * half):
            inner[i] = values[i]
        for j in range(1, 2 * half + 1):
            for i in range(n_elems - 2 * half):
                inner[i] += values[i + j]
    n_left = min(half, n_channels)
    for start in range(0, n_elems, n_channels):
        row, total = values[start:start + n_channels], sums[start:start + n_channels]
        for c in range(n_left):
            total[c] = _sum(row, 0, c + half + 1)
        for c in range(max(n_channels - half, n_left), n_channels):
            total[c] = _sum(row, c - half, n_channels)


@compiled(inline="always")
def _sum(row: np.ndarray, first: int, end: int) -> Any:
    total = row[first]
    for i in range(first + 1, min(end, row.size)):
        total += row[i]
    return total


@compiled
def _box_sum(x: np.ndarray, out: np.ndarray, half: int) -> None:
    """Sums over square windows of (N, H, W, C), cut at the borders."""
    n_images, n_rows, n_columns, n_channels = x.shape
    across = np.empty((n_rows, n_columns, n_channels), x.dtype)
    for n in range(n_images):
        across[:] = 0
        for h in range(n_rows):
            for w in range(n_columns):
                for v in range(max(w - half, 0), min(w + half + 1, n_columns)):
                    for c in range(n_channels):
                        across[h, w, c] += x[n, h, v, c]
        out[n] = 0
        for h in range(n_rows):
            for u in range(max(h - half, 0), min(h + half + 1, n_rows)):
                for w in range(n_columns):
                    for c in range(n_channels):
                        out[n, h, w, c] += across[u, w, c]
