"""Batch normalisation of (rows, channels) matrices, with scale, bias and ReLU fused.

Backward recomputes the sign of the ReLU's input from x, so x is the only activation to keep.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.bfloat16 import real, stored
from scaffe.jit.register_tiles import prefetch_lines
from scaffe.layers.kernels.cpu.arrays import wide
from scaffe.layers.kernels.cpu.channels import BLOCK, WIDE, column_sums, moments
from scaffe.layers.kernels.cpu.elementwise import add_relu, add_up, are_one
from scaffe.layers.kernels.cpu.threads.parts import in_parts
from scaffe.layers.kernels.extents import expect_elems, expect_shape
from scaffe.layers.kernels.specs import NO_DIFFS, NOT_FUSED, Fused, FusedDiffs, NormSpec

AHEAD = 1024  # elements


class Transform:
    """y = relu((x - mean) · factor + bias + addend): statistics (C,) and ``Fused`` in the form that the loops take.

    The loops compute in the statistics' type.
    """

    def __init__(self, mean: np.ndarray, inverse: np.ndarray, fused: Fused) -> None:
        self.mean, self.inverse = mean, inverse
        self.factor = inverse if fused.scale is None else inverse * fused.scale
        self._addend, self._slope_of_sum = fused.addend, fused.slope
        slope = None if fused.addend is not None else fused.slope  # a sum's ReLU comes after the sum
        self.slope = None if slope is None else mean.dtype.type(slope)
        self.bias = np.zeros_like(mean) if fused.bias is None else fused.bias  # fewer kinds of loops to compile
        expect_elems(mean.size, self.factor, self.bias)
        self._numbers = mean, self.factor, self.bias, self.slope

    def forward(self, x: np.ndarray, y: np.ndarray, kept: np.ndarray | None = None) -> None:
        """Write y, which may be x; ``kept`` gets a copy of x in the same pass."""
        if kept is not None:
            in_parts(_forward_keeping, (x, y, kept), *self._numbers)
        elif are_one(x, y):
            in_parts(_forward, (y,), None, *self._numbers)
        else:
            in_parts(_forward, (y, x), *self._numbers)
        if self._addend is not None:
            self._add(y)

    def _add(self, y: np.ndarray) -> None:
        """y = y + addend, then ReLU."""
        if self._slope_of_sum is None:
            add_up([y.reshape(-1), self._addend.reshape(-1)], y.reshape(-1))
        else:
            add_relu(y.reshape(-1), self._addend.reshape(-1), y.reshape(-1), self._slope_of_sum)

    def sums(self, x: np.ndarray, gy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums over the rows of g (x - mean) and of g, float64 (C,), with g the gradient before the ReLU."""
        products, sums = column_sums(_sums, 2, x, gy, *self._numbers)
        return products, sums

    def backward(self, x: np.ndarray, gy: np.ndarray, gx: np.ndarray, products: np.ndarray, sums: np.ndarray) -> None:
        """gx = (g - mean(g) - xn mean(g xn)) · factor with xn = (x - mean) · inverse. gx may be gy."""
        level = (sums / len(x)).astype(self.mean.dtype)
        tilt = (products / len(x) * self.inverse * self.inverse).astype(self.mean.dtype)
        self._backward(x, gy, gx, level, tilt)

    def backward_fixed(self, x: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """gx = g · factor, for statistics that do not depend on x. gx may be gy."""
        if self.slope is None and gx.dtype.kind == "f":
            np.multiply(gy, self.factor, out=gx)
        else:
            level = np.zeros_like(self.mean)
            self._backward(x, gy, gx, level, level)

    def _backward(self, x: np.ndarray, gy: np.ndarray, gx: np.ndarray, level: np.ndarray, tilt: np.ndarray) -> None:
        if are_one(gy, gx):
            in_parts(_backward, (x, gx), None, *self._numbers, level, tilt)
        else:
            in_parts(_backward, (x, gx, gy), *self._numbers, level, tilt)


@compiled
def _forward(y: np.ndarray, x: np.ndarray | None, mean: np.ndarray, factor: np.ndarray, bias: np.ndarray,
             slope: float | None) -> None:
    for r in range(y.shape[0]):
        for c in range(y.shape[1]):
            value = real(y[r, c] if x is None else x[r, c])
            value = (value - mean[c]) * factor[c] + bias[c]
            if slope is not None:
                value = value if value > 0 else slope * value
            y[r, c] = stored(value, y[r, c])


@compiled
def _forward_keeping(x: np.ndarray, y: np.ndarray, kept: np.ndarray, mean: np.ndarray, factor: np.ndarray,
                     bias: np.ndarray, slope: float | None) -> None:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            kept[r, c] = x[r, c]
        for c in range(x.shape[1]):  # the row is still near
            value = (real(kept[r, c]) - mean[c]) * factor[c] + bias[c]
            if slope is not None:
                value = value if value > 0 else slope * value
            y[r, c] = stored(value, y[r, c])


@compiled
def _sums(first: int, stop: int, n_each: int, x: np.ndarray, gy: np.ndarray, mean: np.ndarray, factor: np.ndarray,
          bias: np.ndarray, slope: float | None, found: np.ndarray) -> None:
    n = x.shape[1]
    product, total = np.zeros_like(mean), np.zeros_like(mean)
    for chunk in range(first, stop):
        end, products, sums = min((chunk + 1) * n_each, x.shape[0]), found[chunk, 0], found[chunk, 1]
        for start in range(chunk * n_each, end, BLOCK):
            for r in range(start, min(start + BLOCK, end)):
                prefetch_lines(x, r * n + AHEAD, n)
                prefetch_lines(gy, r * n + AHEAD, n)
                for c in range(n):
                    g, away = real(gy[r, c]), real(x[r, c]) - mean[c]
                    if slope is not None:
                        g = g if away * factor[c] + bias[c] > 0 else slope * g
                    total[c] += g
                    product[c] += g * away
            for c in range(n):
                products[c] += product[c]
                sums[c] += total[c]
                product[c], total[c] = 0, 0


@compiled
def _backward(x: np.ndarray, gx: np.ndarray, gy: np.ndarray | None, mean: np.ndarray, factor: np.ndarray,
              bias: np.ndarray, slope: float | None, level: np.ndarray, tilt: np.ndarray) -> None:
    n = x.shape[1]
    for r in range(x.shape[0]):
        prefetch_lines(x, r * n + AHEAD, n)
        prefetch_lines(gx if gy is None else gy, r * n + AHEAD, n)
        for c in range(n):
            g = real(gx[r, c] if gy is None else gy[r, c])
            away = real(x[r, c]) - mean[c]
            if slope is not None:
                g = g if away * factor[c] + bias[c] > 0 else slope * g
            gx[r, c] = stored((g - level[c] - away * tilt[c]) * factor[c], gx[r, c])


Sums = Sequence[np.ndarray]  # of means (C,), of corrected variances (C,), and their factor (1,)


class BatchNorm:
    """xn = (x - mean) / sqrt(variance + eps) per channel, then y = relu(xn · scale + bias), each part only if fused."""

    def __init__(self, spec: NormSpec) -> None:
        self.spec = spec
        self._real = np.dtype(WIDE) if spec.n_rows <= BLOCK else wide(spec.dtype)
        self._mean, self._inverse = np.zeros(spec.n_channels, self._real), np.ones(spec.n_channels, self._real)
        self._fixed = False

    def forward_train(self, x: np.ndarray, y: np.ndarray, sums: Sums, fused: Fused = NOT_FUSED,
                      kept: np.ndarray | None = None) -> None:
        self._check(x, y, kept)
        mean, variance = moments(x)
        for total, news in zip(sums, (mean, variance * self.spec.correction, np.ones(1)), strict=True):
            with np.errstate(over="ignore"):  # in nets that diverge, the sums are infinite, as in Caffe
                total[...] = total * self.spec.fraction + news
        self._fixed = False
        self._normalize(mean, variance)
        self._transform(fused).forward(x, y, kept)

    def forward_fixed(self, x: np.ndarray, y: np.ndarray, sums: Sums, fused: Fused = NOT_FUSED,
                      kept: np.ndarray | None = None) -> None:
        self._check(x, y, kept)
        mean, variance, total = (s.astype(np.float64) for s in sums)
        scale = 0 if total[0] == 0 else 1 / total[0]
        self._fixed = True
        self._normalize(mean * scale, variance * scale)
        self._transform(fused).forward(x, y, kept)

    def _normalize(self, mean: np.ndarray, variance: np.ndarray) -> None:
        self._mean = mean.astype(self._real)
        self._inverse = (1 / np.sqrt(variance + self.spec.eps)).astype(self._real)

    def _check(self, *rows: np.ndarray | None) -> None:
        expect_shape((self.spec.n_rows, self.spec.n_channels), *rows)

    def _transform(self, fused: Fused) -> Transform:
        return Transform(self._mean, self._inverse, fused)

    def normalized(self, x: np.ndarray, xn: np.ndarray) -> None:
        self._check(x, xn)
        self._transform(NOT_FUSED).forward(x, xn)

    def backward(self, x: np.ndarray, gy: np.ndarray, gx: np.ndarray | None, fused: Fused = NOT_FUSED,
                 diffs: FusedDiffs = NO_DIFFS) -> None:
        self._check(x, gy, gx)
        transform = self._transform(fused)
        wanted = diffs.scale is not None or diffs.bias is not None
        if wanted or not self._fixed:
            products, sums = transform.sums(x, gy)
            for target, gradient in ((diffs.scale, products * self._inverse), (diffs.bias, sums)):
                if target is not None:
                    target[...] = gradient if diffs.overwrite else target + gradient
        if gx is None:
            return
        if self._fixed:
            transform.backward_fixed(x, gy, gx)
        else:
            transform.backward(x, gy, gx, products, sums)
