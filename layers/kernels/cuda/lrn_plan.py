"""Local response normalisation of channels-last images on the device."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from scaffe.layers.kernels.cuda.arena import arena
from scaffe.layers.kernels.cuda.launch import columns_grid, kernel, wide
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.specs import LrnSpec


class Lrn:
    """y = x s^-beta, s = k + alpha / n · sum of squares in the window, centred and cut off at the borders.

    Args:
        spec: the geometry; n is local_size across channels, local_size squared within one.

    Nothing is kept for backward: it has s computed once more, in scratch memory.
    """

    reads_y = True

    def __init__(self, spec: LrnSpec) -> None:
        n, c, *spatial = spec.in_shape
        self._name, self._dtype = "within" if spec.within else "across", np.dtype(spec.dtype)
        real = wide(spec.dtype).type
        self._half, self._beta = np.int32(spec.half), real(spec.beta)
        self._sum_numbers = (real(spec.k), real(spec.alpha / spec.n_window))
        self._back_numbers = (real(2 * spec.alpha * spec.beta / spec.n_window), self._beta)
        n_rows = n * prod(spatial)
        self._counts = tuple(map(np.int32, (n, *spatial, c))) if spec.within else (np.int64(n_rows), np.int32(c))
        self._grid = columns_grid(n_rows, c, spec.dtype)
        self._n_elems = n_rows * c
        self._scale = (self._n_elems, wide(spec.dtype))
        arena.reserve(self._scale)

    def forward(self, x: Any, y: Any) -> None:
        """Write y."""
        expect_elems(self._n_elems, x, y)
        self._run(self._name, x, y, self._half, *self._sum_numbers, self._beta)

    def backward(self, x: Any, y: Any, gy: Any, gx: Any) -> None:
        """Write gx = gy s^-beta - 2 alpha beta / n · x · sum over the window of gy y / s. gx must not be gy."""
        expect_elems(self._n_elems, x, y, gy, gx)
        (scale,) = arena.take(self._scale)
        self._run(f"{self._name}_scale", x, scale, self._half, *self._sum_numbers)
        self._run(f"{self._name}_back", x, y, gy, gx, scale, self._half, *self._back_numbers)

    def _run(self, name: str, *arguments: Any) -> None:
        if self._n_elems:
            kernel("lrn", name, self._dtype)(*self._grid, (*arguments, *self._counts))
