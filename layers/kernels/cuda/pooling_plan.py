"""Poolings of channels-last images on the device, every rule of Caffe's."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.launch import columns_grid, kernel
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.specs import PoolSpec

MOST_SMALL = 255  # places of a window that a byte can tell apart, and "none"


class Pooling:
    """MAX, AVE or STOCHASTIC of one geometry. Which element of its window each output took is kept for backward.

    Args:
        spec: the geometry.
    """

    def __init__(self, spec: PoolSpec) -> None:
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
        """See ReluPoolingPlan."""
        self._above_zero = np.int32(True)

    def forward(self, x: Any, y: Any, mask: Any = None) -> None:
        """Pool x into y. ``mask``, like y, gets the index h W + w of each maximum (Caffe's second top), in
        its own type.
        """
        self._check(x, y, mask)
        if self.spec.method == "AVE":
            self._run("average", self._outputs, x, y)
        else:
            other = None if mask is None else np.dtype(mask.dtype)
            self._run("maximum", self._outputs, x, y, self._places, mask, self._above_zero, other=other)

    def forward_stochastic(self, x: Any, y: Any, draws: Any) -> None:
        """Choose one element of each window, with probability proportional to its value (Zeiler and Fergus, "Stochastic
        Pooling", ICLR 2013, section 3). Without draws, y is the mean weighted with these probabilities.

        Args:
            x, y: as in ``forward``.
            draws: float32 numbers in [0, 1), one for each output, in storage order; None in the test phase.
        """
        self._check(x, y, draws)
        if draws is None:
            self._run("weighted_mean", self._outputs, x, y)
        else:
            self._run("stochastic", self._outputs, x, y, self._places, draws.astype(np.float32, copy=False))

    def backward(self, gy: Any, gx: Any) -> None:
        """Write the bottom's gradient to gx."""
        self._check(gx, gy)
        if self.spec.method == "AVE":
            self._run("average_back", self._inputs, gy, gx)
        else:
            self._run("maximum_back", self._inputs, gy, self._places, gx)

    def _check(self, bottom: Any, *tops: Any) -> None:
        n_in, n_out = self._n_elems
        expect_elems(n_in, bottom)
        expect_elems(n_out, *tops)

    def _run(self, name: str, grid: Any, *args: Any, other: Any = None) -> None:
        if 0 not in self.spec.in_shape:
            self._kernel(name, other=other)(*grid, (*args, *self._window))
