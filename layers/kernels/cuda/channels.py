"""Kernels with numbers per channel, on (rows, channels) matrices of the device: biases, moments, learned scales, and
batch normalisation with Caffe's running sums.

Sums over rows take two steps: each thread block writes a partial sum to the arena, then these are added. The order of
additions is fixed, so the same arrays give the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda import deferred
from scaffe.layers.kernels.cuda.arena import Part, arena
from scaffe.layers.kernels.cuda.deferred import Work
from scaffe.layers.kernels.cuda.launch import THREADS, columns_grid, kernel, pack, wide
from scaffe.layers.kernels.extents import expect_elems, expect_shape
from scaffe.layers.kernels.specs import NO_DIFFS, NOT_FUSED, Fused, FusedDiffs, NormPasses, NormSpec, Thinned

Pair = tuple[Any, Any]
I = np.int32  # noqa: E741 - the kernels' int
PARTS_AT_ONCE = 16  # MOST_DOWN of rows.cuh


def parts_of(n_rows: int, n_channels: int, dtype: Any, n_blocks: int = 0) -> Part:
    """Shape and type of the scratch memory for the partial sums of two sums per channel. ``n_blocks``: as for
    ``columns_grid``."""
    return (2, columns_grid(n_rows, n_channels, dtype, n_blocks)[0][1], n_channels), wide(dtype)


def norm_parts(spec: NormSpec, n_blocks: int = 0) -> tuple[Part, ...]:
    """What backward of a batch normalisation takes of the arena; forward takes the first of them."""
    numbers: Part = (spec.n_channels, wide(spec.dtype))
    return parts_of(spec.n_rows, spec.n_channels, spec.dtype, n_blocks), numbers, numbers


def sum_parts(name: str, x: Any, arrays: tuple[Any, ...], parts: Any, family: str = "channels") -> None:
    """The first step: launch kernel ``name`` of a family, which writes partial sums over the rows of x to ``parts``."""
    grid, block = columns_grid(x.shape[0], x.shape[1], x.dtype)
    shared = 2 * pack(x.dtype) * THREADS * wide(x.dtype).itemsize
    kernel(family, name, x.dtype)(grid, block, (*arrays, parts, *map(I, x.shape)), shared_mem=shared)


def per_channel(name: str, dtype: Any, n_channels: int, arguments: tuple[Any, ...], family: str = "channels") -> None:
    """The second step: launch kernel ``name`` of a family, whose blocks add the partial sums of 32 channels each."""
    kernel(family, name, np.dtype(dtype))((-(-n_channels // 32),), (32, PARTS_AT_ONCE), arguments)


def by_rows(name: str, x: Any, arguments: tuple[Any, ...], family: str = "channels") -> None:
    """Launch kernel ``name`` of a family over all elements of x (rows, channels)."""
    if x.size:
        grid, block = columns_grid(x.shape[0], x.shape[1], x.dtype)
        kernel(family, name, x.dtype)(grid, block, (*arguments, *map(I, x.shape)))


def places(thinned: Thinned) -> tuple[np.uint32, ...]:
    """What kernels take of thinned images of two spatial axes."""
    return tuple(map(np.uint32, (*thinned.shape[2:], *thinned.kept_shape[2:], *thinned.step)))


def numbers(values: Any, dtype: Any) -> Any:
    """Numbers per channel, converted to the type in which kernels take them with arrays of ``dtype``; None stays."""
    return values if values is None or values.dtype == wide(dtype) else values.astype(wide(dtype))


def add_gradients(g: Any, gb: Any, overwrite: bool) -> None:
    """Add the sum over the rows of g (rows, C) to gb (C,), or write it if ``overwrite``."""
    expect_elems(g.shape[1], gb)
    (parts,) = arena.take(parts_of(g.shape[0], g.shape[1], g.dtype))
    sum_parts("sum_gradients", g, (g,), parts)
    per_channel("finish_gradients", g.dtype, g.shape[1],
                (parts, gb, I(not overwrite), I(parts.shape[1]), I(g.shape[1])))


def add_bias(y: Any, b: Any, relu_slope: float | None) -> None:
    """y (rows, C) += b (C,) if given, then a ReLU in place if a slope is given."""
    if b is not None or relu_slope is not None:
        scale_rows(y, None, b, y, None, relu_slope)


def moments(x: Any) -> Pair:
    """Mean and variance of each column, float64 (channels,). The variance divides by the number of rows."""
    (parts,), found = arena.take(parts_of(x.shape[0], x.shape[1], x.dtype)), _doubles(x.shape[1])
    sum_parts("sum_squares", x, (x,), parts)
    per_channel("finish_moments", x.dtype, x.shape[1],
                (x, parts, *found, I(x.shape[0]), I(parts.shape[1]), I(x.shape[1])))
    return found


def scale_rows(x: Any, scale: Any, bias: Any, y: Any, kept: Any = None, relu_slope: float | None = None) -> None:
    """y = x · scale + bias, then a ReLU if a slope is given. y may be x; ``kept`` gets a copy of x first."""
    expect_shape(x.shape, y, kept)
    expect_elems(x.shape[1], scale, bias)
    slope = wide(x.dtype).type(1 if relu_slope is None else relu_slope)
    by_rows("scale_rows", x, (x, numbers(scale, x.dtype), numbers(bias, x.dtype), y, kept, slope))


def scale_sums(x: Any, gy: Any) -> Pair:
    """Sums over the rows of gy · x and of gy, float64 (channels,): the gradients of scale and bias."""
    expect_shape(x.shape, gy)
    (parts,), (products, sums) = arena.take(parts_of(x.shape[0], x.shape[1], x.dtype)), _doubles(x.shape[1])
    sum_parts("sum_products", x, (x, gy), parts)
    per_channel("finish_products", x.dtype, x.shape[1], (parts, sums, products, I(parts.shape[1]), I(x.shape[1])))
    return products, sums


def _doubles(n_channels: int) -> Pair:
    cupy = device.load()
    return cupy.empty(n_channels, np.float64), cupy.empty(n_channels, np.float64)


FAMILY = "batch_norm"


class BatchNorm:
    """xn = (x - mean) / sqrt(variance + eps) per channel; y = relu(xn · scale + bias + addend), each part if fused.
    ``mean`` and ``inverse``, 1 / sqrt(variance + eps), (C,), are the last forward's, float32 for half types; ``fixed``
    if they came from the running sums."""

    def __init__(self, spec: NormSpec) -> None:
        cupy, self._real = device.load(), wide(spec.dtype)
        self.spec = spec
        self.mean, self.inverse = cupy.zeros(spec.n_channels, self._real), cupy.ones(spec.n_channels, self._real)
        self.fixed = False
        self._parts = norm_parts(spec)

    def scratch(self, passes: NormPasses) -> list[tuple[Part, ...]]:
        """What passes take of the arena at once."""
        return [self._parts]

    def forward_train(self, x: Any, y: Any, sums: Any, fused: Fused = NOT_FUSED, kept: Any = None) -> None:
        self._check(x, y, kept)
        (parts,) = arena.take(self._parts[0])
        sum_parts("sum_squares", x, (x,), parts)
        self._per_channel("finish_training", x, parts, self.mean, self.inverse, *sums, *self.numbers(),
                          I(x.shape[0]), I(parts.shape[1]))
        self.fixed = False
        self._normalize(x, y, fused, kept)

    def forward_fixed(self, x: Any, y: Any, sums: Any, fused: Fused = NOT_FUSED, kept: Any = None) -> None:
        self._check(x, y, kept)
        self._per_channel("finish_fixed", *sums, self.mean, self.inverse, np.float64(self.spec.eps))
        self.fixed = True
        self._normalize(x, y, fused, kept)

    def add_to_sums(self, sums: Any) -> None:
        """Update the running sums from ``mean`` and ``inverse``, which the caller has computed for a batch; that may
        wait (``deferred``)."""
        numbers = (self.spec.eps, self.spec.fraction, self.spec.correction, self.spec.n_channels)
        work = Work((self.mean, self.inverse, *sums), numbers, sums[0], self.spec.n_channels)
        deferred.add(deferred.SUMS, work, self.spec.dtype)
        self.fixed = False

    def normalized(self, x: Any, xn: Any) -> None:
        self._check(x, xn)
        self._normalize(x, xn, NOT_FUSED, None)

    def backward(self, x: Any, gy: Any, gx: Any, fused: Fused = NOT_FUSED, diffs: FusedDiffs = NO_DIFFS) -> None:
        self._check(x, gy, gx)
        parts, level, tilt = arena.take(*self._parts)
        affine = self._affine(fused)
        if diffs.scale is not None or diffs.bias is not None or not self.fixed:
            sum_parts("sum_back", x, (x, gy, *affine), parts, FAMILY)
            self._per_channel("finish_back", parts, self.inverse, level, tilt, diffs.scale, diffs.bias,
                              I(not diffs.overwrite), I(x.shape[0]), I(parts.shape[1]))
        if gx is not None:
            shares = (None, None) if self.fixed else (level, tilt)
            by_rows("normalize_back", x, (x, gy, *affine, gx, *shares), FAMILY)

    def backward_thinned(self, x: Any, gy: Any, gx: Any, thinned: Thinned, fused: Fused = NOT_FUSED,
                         diffs: FusedDiffs = NO_DIFFS) -> None:
        """See ThinningPlan."""
        self._check(x, gx)
        rows, found = gy.reshape(-1, self.spec.n_channels), places(thinned)
        parts, level, tilt = arena.take(parts_of(rows.shape[0], rows.shape[1], x.dtype), *self._parts[1:])
        affine = self._affine(fused)
        sum_parts("sum_back_thinned", rows, (x, rows, *affine, *found), parts, FAMILY)
        self._per_channel("finish_back", parts, self.inverse, level, tilt, diffs.scale, diffs.bias,
                          I(not diffs.overwrite), I(x.shape[0]), I(parts.shape[1]))
        if gx is not None:
            by_rows("normalize_back_thinned", x, (x, rows, *affine, gx, level, tilt, *found), FAMILY)

    def leave(self, of_scale: Any, of_bias: Any, diffs: FusedDiffs) -> None:
        """Add gradients of scale and bias, (C,), to ``diffs``, or write them if ``diffs.overwrite``."""
        self._per_channel("leave_both", of_scale, of_bias, diffs.scale, diffs.bias, I(not diffs.overwrite))

    def numbers(self) -> tuple[np.float64, ...]:
        """eps, fraction and correction, as the kernels take them."""
        return np.float64(self.spec.eps), np.float64(self.spec.fraction), np.float64(self.spec.correction)

    def _check(self, *rows: Any) -> None:
        expect_shape((self.spec.n_rows, self.spec.n_channels), *rows)

    def _normalize(self, x: Any, y: Any, fused: Fused, kept: Any) -> None:
        self._check(fused.addend)
        by_rows("normalize", x, (x, *self._affine(fused), fused.addend, y, kept), FAMILY)

    def _affine(self, fused: Fused) -> tuple[Any, ...]:
        expect_elems(self.spec.n_channels, fused.scale, fused.bias)
        slope = self._real.type(1 if fused.slope is None else fused.slope)
        return self.mean, self.inverse, fused.scale, fused.bias, slope

    def _per_channel(self, name: str, *arguments: Any) -> None:
        n_channels = self.spec.n_channels
        per_channel(name, self.spec.dtype, n_channels, (*arguments, I(n_channels)), FAMILY)
