"""Local response normalisation of channels-last images, in numba: for its backward, oneDNN has only a slow kernel."""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.brain import real, stored
from scaffe.layers.kernels.cpu.bound_kernels import bind_parts
from scaffe.layers.kernels.cpu.calls import Calls
from scaffe.layers.kernels.cpu.parts import in_parts
from scaffe.layers.kernels.cpu.words import wide
from scaffe.layers.kernels.specs import LrnSpec


class Lrn:
    """y = x s^-beta, s = k + alpha / n · sum of squares in the window, centred and cut off at the borders.

    Args:
        spec: the geometry; n is local_size across channels, local_size squared within one.
    """

    def __init__(self, spec: LrnSpec) -> None:
        self.spec = spec
        n, c, *spatial = spec.in_shape
        dtype = wide(spec.dtype)
        number = dtype.type
        self._shape = (n, *spatial, c) if spec.within else (n * prod(spatial), c)
        self._scale = np.ones(self._shape, dtype)  # s, kept for backward
        self._half = spec.half
        self._k, self._beta = number(spec.k), number(spec.beta)
        self._rate = number(spec.alpha / spec.n_window)
        self._back_rate = number(2 * spec.alpha * spec.beta / spec.n_window)

    def forward(self, x: np.ndarray, y: np.ndarray) -> None:
        """Write y, and keep s for backward."""
        x, y = x.reshape(self._shape), y.reshape(self._shape)
        if self.spec.within:
            _box_sum(x * x, self._scale, self._half)
            self._scale *= self._rate
            self._scale += self._k
            np.multiply(x, self._scale ** -self._beta, out=y)
        else:
            in_parts(_across, (x, y, self._scale), self._half, (self._k, self._rate, self._beta))

    def bind(self, x: np.ndarray, y: np.ndarray) -> Calls | None:
        """See Bindable."""
        if self.spec.within:
            return None
        x, y = x.reshape(self._shape), y.reshape(self._shape)
        return bind_parts(_across, (x, y, self._scale), self._half, (self._k, self._rate, self._beta))

    def backward(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """Write gx = gy s^-beta - 2 alpha beta / n · x · sum over the window of gy y / s."""
        x, y, gy, gx = (a.reshape(self._shape) for a in (x, y, gy, gx))
        if self.spec.within:
            sums = np.empty_like(self._scale)
            _box_sum(gy * y / self._scale, sums, self._half)
            np.subtract(gy * self._scale ** -self._beta, self._back_rate * x * sums, out=gx)
        else:
            in_parts(_across_back, (x, y, gy, gx, self._scale), self._half, (self._back_rate, self._beta))


@compiled(error_model="numpy")
def _across(x: np.ndarray, y: np.ndarray, scale: np.ndarray, half: int, numbers: tuple[float, float, float]) -> None:
    """Channels are columns. A padded row of squares lets every window be summed alike, many channels at a time."""
    k, rate, beta = numbers
    n_channels = x.shape[1]
    squares = np.zeros(n_channels + 2 * half, scale.dtype)
    is_usual = beta == scale.dtype.type(0.75)
    for r in range(x.shape[0]):
        row, out, s = x[r], y[r], scale[r]
        for c in range(n_channels):
            number = real(row[c])
            squares[half + c] = number * number
        _window_sums(squares, s, half)
        if is_usual:  # s^-3/4 by square roots, which processors have
            for c in range(n_channels):
                s[c] = k + rate * s[c]
                root = np.sqrt(s[c])
                out[c] = stored(real(row[c]) / (root * np.sqrt(root)), out[c])
        else:
            for c in range(n_channels):
                s[c] = k + rate * s[c]
                out[c] = stored(real(row[c]) * s[c] ** -beta, out[c])


@compiled(error_model="numpy")
def _across_back(x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray, scale: np.ndarray, half: int,
                 numbers: tuple[float, float]) -> None:
    rate, beta = numbers
    n_channels = x.shape[1]
    ratios = np.zeros(n_channels + 2 * half, scale.dtype)
    sums = np.zeros(n_channels, scale.dtype)
    is_usual = beta == scale.dtype.type(0.75)
    for r in range(x.shape[0]):
        row, out, grad, grow, s = x[r], y[r], gy[r], gx[r], scale[r]
        for c in range(n_channels):
            ratios[half + c] = real(grad[c]) * real(out[c]) / s[c]
        _window_sums(ratios, sums, half)
        if is_usual:
            for c in range(n_channels):
                root = np.sqrt(s[c])
                value = real(grad[c]) / (root * np.sqrt(root)) - rate * real(row[c]) * sums[c]
                grow[c] = stored(value, grow[c])
        else:
            for c in range(n_channels):
                value = real(grad[c]) * s[c] ** -beta - rate * real(row[c]) * sums[c]
                grow[c] = stored(value, grow[c])


@compiled(inline="always")
def _window_sums(padded: np.ndarray, sums: np.ndarray, half: int) -> None:
    """sums[c] = padded[c] + ... + padded[c + 2 half]."""
    if half == 2:  # the usual one, in one pass
        for c in range(sums.size):
            sums[c] = padded[c] + padded[c + 1] + padded[c + 2] + padded[c + 3] + padded[c + 4]
        return
    for c in range(sums.size):
        sums[c] = padded[c]
    for i in range(1, 2 * half + 1):
        for c in range(sums.size):
            sums[c] += padded[c + i]


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
