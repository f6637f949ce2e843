"""Pooling by numba for any dtype and all of Caffe's methods, where oneDNN has no kernel or a mask is wanted."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.threads.parts import LEAST_ELEMS, in_units
from scaffe.layers.kernels.cpu.threads.prepared_calls import NativeCalls, prepare_units
from scaffe.layers.kernels.specs import PoolSpec

NOWHERE = -1
Window = tuple[int, ...]  # kernel, stride and pad, (height, width) each


class Pooling:
    """MAX, AVE or STOCHASTIC of one geometry on channels-last images."""

    def __init__(self, spec: PoolSpec) -> None:
        spec.check()
        self.spec = spec
        n, c, *spatial = spec.in_shape
        self._in, self._out = (n, *spatial, c), (n, *spec.out_spatial, c)
        self._most_parts = prod(self._in) // LEAST_ELEMS
        self._window = (*spec.kernel, *spec.stride, *spec.pad)
        self._places = np.full(self._out, NOWHERE, np.int32)  # of the element taken, h W + w

    def forward(self, x: np.ndarray, y: np.ndarray, mask: np.ndarray | None = None) -> None:
        """Pool x into y. ``mask``, like y, gets the index h W + w of each maximum (Caffe's second top)."""
        x, y = x.reshape(self._in), y.reshape(self._out)
        if self.spec.method == "AVE":
            self._run(_average, x, y, self._window)
            return
        self._run(_maximum, x, y, self._places, self._window)
        if mask is not None:
            mask.reshape(self._out)[...] = self._places

    def prepare_calls(self, x: np.ndarray, y: np.ndarray) -> NativeCalls | None:
        x, y = x.reshape(self._in), y.reshape(self._out)
        is_mean = self.spec.method == "AVE"
        kernel, args = (_average, (x, y)) if is_mean else (_maximum, (x, y, self._places))
        return prepare_units(kernel, 1, self._in[0], self._most_parts, *args, self._window)

    def forward_stochastic(self, x: np.ndarray, y: np.ndarray, draws: np.ndarray | None) -> None:
        x, y = x.reshape(self._in), y.reshape(self._out)
        if draws is None:
            self._run(_weighted_mean, x, y, self._window)
        else:
            self._run(_stochastic, x, y, self._places, draws.reshape(self._out), self._window)

    def backward(self, gy: np.ndarray, gx: np.ndarray) -> None:
        gy, gx = gy.reshape(self._out), gx.reshape(self._in)
        if self.spec.method == "AVE":
            self._run(_average_back, gy, gx, self._window)
        else:
            self._run(_scatter, gy, gx, self._places)

    def _run(self, kernel: Callable[..., None], *args: Any) -> None:
        """Run a kernel on all images, some on each thread."""
        in_units(kernel, 1, self._in[0], self._most_parts, *args)


@compiled
def _bounds(i: int, j: int, n_rows: int, n_columns: int, window: Window) -> tuple[int, int, int, int, int]:
    """The range of rows and of columns of a window inside the image, and the number that AVE divides by."""
    kh, kw, sh, sw, ph, pw = window
    top, left = i * sh - ph, j * sw - pw
    bottom, right = min(top + kh, n_rows + ph), min(left + kw, n_columns + pw)
    divisor = (bottom - top) * (right - left)
    return max(top, 0), min(bottom, n_rows), max(left, 0), min(right, n_columns), divisor


@compiled
def _maximum(start: int, stop: int, x: np.ndarray, y: np.ndarray, places: np.ndarray, window: Window) -> None:
    _, n_rows, n_columns, n_channels = x.shape
    for n in range(start, stop):
        for i in range(y.shape[1]):
            for j in range(y.shape[2]):
                h0, h1, w0, w1, _ = _bounds(i, j, n_rows, n_columns, window)
                out, taken = y[n, i, j], places[n, i, j]
                out[:] = x[n, h0, w0]
                taken[:] = h0 * n_columns + w0
                for h in range(h0, h1):
                    for w in range(w0, w1):
                        row, place = x[n, h, w], np.int32(h * n_columns + w)
                        for c in range(n_channels):  # innermost: many channels at a time
                            is_larger = row[c] > out[c]
                            out[c] = row[c] if is_larger else out[c]
                            taken[c] = place if is_larger else taken[c]


@compiled
def _scatter(start: int, stop: int, gy: np.ndarray, gx: np.ndarray, places: np.ndarray) -> None:
    n_columns = gx.shape[2]
    for n in range(start, stop):
        gx[n] = 0
        for i in range(gy.shape[1]):
            for j in range(gy.shape[2]):
                for c in range(gy.shape[3]):
                    place = places[n, i, j, c]
                    gx[n, place // n_columns, place % n_columns, c] += gy[n, i, j, c]


@compiled
def _average(start: int, stop: int, x: np.ndarray, y: np.ndarray, window: Window) -> None:
    _, n_rows, n_columns, n_channels = x.shape
    for n in range(start, stop):
        for i in range(y.shape[1]):
            for j in range(y.shape[2]):
                h0, h1, w0, w1, divisor = _bounds(i, j, n_rows, n_columns, window)
                y[n, i, j, :] = 0
                for h in range(h0, h1):
                    for w in range(w0, w1):
                        for c in range(n_channels):
                            y[n, i, j, c] += x[n, h, w, c]
                for c in range(n_channels):
                    y[n, i, j, c] /= divisor


@compiled
def _average_back(start: int, stop: int, gy: np.ndarray, gx: np.ndarray, window: Window) -> None:
    _, n_rows, n_columns, n_channels = gx.shape
    for n in range(start, stop):
        gx[n] = 0
        for i in range(gy.shape[1]):
            for j in range(gy.shape[2]):
                h0, h1, w0, w1, divisor = _bounds(i, j, n_rows, n_columns, window)
                for h in range(h0, h1):
                    for w in range(w0, w1):
                        for c in range(n_channels):
                            gx[n, h, w, c] += gy[n, i, j, c] / divisor


@compiled
def _stochastic(start: int, stop: int, x: np.ndarray, y: np.ndarray, places: np.ndarray, draws: np.ndarray,
                window: Window) -> None:
    _, n_rows, n_columns, n_channels = x.shape
    for n in range(start, stop):
        for i in range(y.shape[1]):
            for j in range(y.shape[2]):
                h0, h1, w0, w1, _ = _bounds(i, j, n_rows, n_columns, window)
                for c in range(n_channels):
                    total = x[n, h0:h1, w0:w1, c].sum()
                    limit, seen = draws[n, i, j, c] * total, x.dtype.type(0)
                    place = -1
                    for h in range(h0, h1):
                        for w in range(w0, w1):
                            seen += x[n, h, w, c]
                            if place < 0 and seen >= limit:
                                place = h * n_columns + w
                    places[n, i, j, c] = place if place >= 0 else (h1 - 1) * n_columns + w1 - 1
                    taken = places[n, i, j, c]
                    y[n, i, j, c] = x[n, taken // n_columns, taken % n_columns, c]


@compiled
def _weighted_mean(start: int, stop: int, x: np.ndarray, y: np.ndarray, window: Window) -> None:
    _, n_rows, n_columns, n_channels = x.shape
    for n in range(start, stop):
        for i in range(y.shape[1]):
            for j in range(y.shape[2]):
                h0, h1, w0, w1, _ = _bounds(i, j, n_rows, n_columns, window)
                for c in range(n_channels):
                    total, squares = x.dtype.type(0), x.dtype.type(0)
                    for h in range(h0, h1):
                        for w in range(w0, w1):
                            total += x[n, h, w, c]
                            squares += x[n, h, w, c] * x[n, h, w, c]
                    y[n, i, j, c] = squares / total if total > 0 else 0
