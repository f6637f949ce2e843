"""Pooling and local response normalisation of channels-last images on the device."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.arena import SMALL_BYTES, arena
from scaffe.layers.kernels.cuda.launch import columns_grid, kernel, wide
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.specs import Ints, LrnSpec, PoolSpec

MOST_SMALL = 255  # positions in a window that a byte can hold, with one more for "none"


class Pooling:
    """MAX, AVE or STOCHASTIC pooling of one geometry. For backward it keeps which element each output took."""

    def __init__(self, spec: PoolSpec, wants_mask: bool = False) -> None:
        spec.check()
        self.spec = spec
        n, c, *spatial = spec.in_shape
        n_taps = spec.kernel[0] * spec.kernel[1]
        small = n_taps <= MOST_SMALL
        self._kernel = partial(kernel, "pooling", dtype=np.dtype(spec.dtype), place="unsigned char" if small else "int")
        self._window = tuple(np.int32(v) for v in (n, c, *spatial, *spec.out_spatial, *spec.kernel, *spec.stride,
                                                   *spec.pad))
        self._n_elems = prod(spec.in_shape), prod(spec.out_shape)
        self._outputs = columns_grid(n * spec.out_spatial[0] * spec.out_spatial[1], c, spec.dtype)
        self._inputs = columns_grid(n * spatial[0] * spatial[1], c, spec.dtype)
        n_kept = n * c * spec.out_spatial[0] * spec.out_spatial[1] if spec.method != "AVE" else 0
        self._places = device.load().zeros(n_kept, np.uint8 if small else np.int32)
        self._above_zero = np.int32(False)

    def include_relu(self) -> None:
        self._above_zero = np.int32(True)

    def forward(self, x: Any, y: Any, mask: Any = None) -> None:
        """Pool x into y. ``mask``, like y, gets the index h W + w of each maximum (Caffe's second top), in its own
        type."""
        self._check(x, y, mask)
        if self.spec.method == "AVE":
            self._run("average", self._outputs, x, y)
        else:
            other = None if mask is None else np.dtype(mask.dtype)
            self._run("maximum", self._outputs, x, y, self._places, mask, self._above_zero, other=other)

    def forward_stochastic(self, x: Any, y: Any, draws: Any) -> None:
        """See StochasticPoolingPlan; the draws are float32."""
        self._check(x, y, draws)
        if draws is None:
            self._run("weighted_mean", self._outputs, x, y)
        else:
            self._run("stochastic", self._outputs, x, y, self._places, draws.astype(np.float32, copy=False))

    def backward(self, gy: Any, gx: Any) -> None:
        self._check(gx, gy)
        if self.spec.method == "AVE":
            self.backward_average(gy, gx)
        else:
            self._run("maximum_back", self._inputs, gy, self._places, gx)

    def backward_average(self, gy: Any, gx: Any, signs: Any = None) -> None:
        """See AveragingPlan."""
        self._check(gx, gy)
        self._check(signs if signs is not None else gx)
        self._run("average_back", self._inputs, gy, signs, gx)

    def _check(self, bottom: Any, *tops: Any) -> None:
        n_in, n_out = self._n_elems
        expect_elems(n_in, bottom)
        expect_elems(n_out, *tops)

    def _run(self, name: str, grid: Any, *args: Any, other: Any = None) -> None:
        if 0 not in self.spec.in_shape:
            self._kernel(name, other=other)(*grid, (*args, *self._window))


EIGHT = 8  # images, or a multiple of them: packed loads find the next ones aligned


def lrn_images(shape: Ints, dtype: Any) -> int:
    """How many images (N, C, H, W) backward of an LRN computes at a time, so that what it works in is small."""
    an_image = max(prod(shape[1:]), 1) * wide(dtype).itemsize
    n_at_once = min(max(SMALL_BYTES // an_image, 1), shape[0])
    return n_at_once if n_at_once < EIGHT or n_at_once == shape[0] else n_at_once // EIGHT * EIGHT


class Lrn:
    """y = x s^-beta, s = k + alpha / n · sum of squares in the window, centred and cut off at the borders. Nothing is
    kept for backward, which recomputes s in scratch memory, some images at a time. In a window across channels it
    recomputes y, too."""

    def __init__(self, spec: LrnSpec) -> None:
        n, c, *spatial = spec.in_shape
        self._name, self._dtype = "within" if spec.within else "across", np.dtype(spec.dtype)
        real = wide(spec.dtype).type
        self._half, self._beta = np.int32(spec.half), real(spec.beta)
        self._sum_numbers = (real(spec.k), real(spec.alpha / spec.n_window))
        self._back_numbers = (real(2 * spec.alpha * spec.beta / spec.n_window), self._beta)
        n_rows = n * prod(spatial)
        self.reads_y, self._places = spec.within, (*spatial, c)
        self._grid = columns_grid(n_rows, c, spec.dtype)
        self._n_elems, self._n_images, self._n_at_once = n_rows * c, n, lrn_images(spec.in_shape, spec.dtype)

    def forward(self, x: Any, y: Any) -> None:
        expect_elems(self._n_elems, x, y)
        self._run(self._name, self._n_images, x, y, self._half, *self._sum_numbers, self._beta)

    def backward(self, x: Any, y: Any, gy: Any, gx: Any) -> None:
        """Write gx = gy s^-beta - 2 alpha beta / n · x · sum over the window of gy y / s. gx must not be gy."""
        expect_elems(self._n_elems, x, y, gy, gx)
        an_image = prod(self._places)
        (scale,) = arena.take((self._n_at_once * an_image, wide(self._dtype)))
        for start in range(0, self._n_images, max(self._n_at_once, 1)):
            n_images = min(self._n_at_once, self._n_images - start)
            part = [a.reshape(-1)[start * an_image:(start + n_images) * an_image]
                    for a in ((x, y, gy, gx) if self.reads_y else (x, gy, gx))]
            self._run(f"{self._name}_scale", n_images, part[0], scale, self._half, *self._sum_numbers)
            self._run(f"{self._name}_back", n_images, *part, scale, self._half, *self._back_numbers)

    def _run(self, name: str, n_images: int, *arguments: Any) -> None:
        *spatial, c = self._places
        counts = tuple(map(np.int32, (n_images, *self._places))) if self.reads_y else (
            np.int64(n_images * prod(spatial)), np.int32(c))
        if self._n_elems:
            kernel("lrn", name, self._dtype)(*self._grid, (*arguments, *counts))
