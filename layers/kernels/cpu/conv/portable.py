"""Convolution by im2col and BLAS for any dtype, and deconvolution by a convolution's plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from scaffe.layers.kernels.specs import ConvSpec

BLOCK_ELEMS = 1 << 19  # of the images unfolded at once: they stay in a cache, and suffice for a fast product


class Convolution:
    """The three passes of one geometry, of any number of spatial axes, some images at a time.

    Legend: N images, B images of a block, C input and O output channels, G groups, S pixels of an output, k... the
    kernel's axes, K their product."""

    def __init__(self, spec: ConvSpec) -> None:
        self.spec = spec
        self._padded = tuple(n + 2 * p for n, p in zip(spec.in_shape[2:], spec.pad, strict=True))
        self._per_group = spec.in_shape[1] // spec.group
        self._n_out = prod(spec.out_spatial)
        self._offsets = list(product(*(range(0, k * d, d) for k, d in zip(spec.kernel, spec.dilation, strict=True))))
        n_columns = self._n_out * len(self._offsets) * spec.in_shape[1]
        self._block = max(1, BLOCK_ELEMS // max(n_columns, 1))

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
        kernels = self._kernels(w)
        for images, out in self._blocks(x, y):
            for g, columns in enumerate(self._columns(images)):
                out[:, self._outputs(g)] = columns @ kernels[g]  # (B S, K C/G) (K C/G, O/G)
            if b is not None:
                out += b
            if relu_slope is not None:
                out[...] = np.where(out > 0, out, relu_slope * out)

    def backward_data(self, gy: np.ndarray, w: np.ndarray, gx: np.ndarray) -> None:
        kernels = self._kernels(w)
        for gimages, gout in self._blocks(gx, gy):
            padded = np.zeros((len(gimages), *self._padded, self.spec.in_shape[1]), gx.dtype)
            for g, kernel in enumerate(kernels):
                gcolumns = gout[:, self._outputs(g)] @ kernel.T  # (B S, K C/G)
                gcolumns = gcolumns.reshape(-1, *self.spec.out_spatial, len(self._offsets), self._per_group)
                for i, offset in enumerate(self._offsets):
                    padded[(slice(None), *self._window(offset), self._inputs(g))] += gcolumns[..., i, :]
            gimages[...] = padded[self._inside()]

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        if overwrite:
            gw[...] = 0
            if gb is not None:
                gb[...] = 0
        for images, gout in self._blocks(x, gy):
            for g, columns in enumerate(self._columns(images)):
                part = columns.T @ gout[:, self._outputs(g)]  # (K C/G, O/G)
                gw[self._outputs(g)] += np.moveaxis(part.T.reshape(-1, *self.spec.kernel, self._per_group), -1, 1)
            if gb is not None:
                gb += gout.sum(0)

    # -- parts ---------------------------------------------------------------------------------------------
    def _blocks(self, x: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield blocks of images (B, spatial..., C) with their outputs (B S, O)."""
        n, n_channels, *spatial = self.spec.in_shape
        x, y = x.reshape(n, *spatial, n_channels), y.reshape(n, self._n_out, self.spec.n_output)
        for start in range(0, n, self._block):
            end = start + self._block
            yield x[start:end], y[start:end].reshape(-1, self.spec.n_output)

    def _kernels(self, w: np.ndarray) -> list[np.ndarray]:
        """For each group the weights (K C/G, O/G), the kernel's position varying slowest."""
        rows = np.moveaxis(w.reshape(self.spec.weight_shape), 1, -1).reshape(self.spec.n_output, -1)
        return [rows[self._outputs(g)].T for g in range(self.spec.group)]

    def _columns(self, images: np.ndarray) -> Iterator[np.ndarray]:
        """Yield for each group the images' windows (im2col), (B S, K C/G)."""
        spec = self.spec
        padded = np.zeros((len(images), *self._padded, spec.in_shape[1]), images.dtype)
        padded[self._inside()] = images
        first, *steps, last = padded.strides
        places = (s * n for s, n in zip(spec.stride, steps, strict=True))
        taps = (d * n for d, n in zip(spec.dilation, steps, strict=True))
        windows = as_strided(padded, (len(images), *spec.out_spatial, *spec.kernel, spec.in_shape[1]),
                             (first, *places, *taps, last), writeable=False)
        for g in range(spec.group):
            yield windows[..., self._inputs(g)].reshape(len(images) * self._n_out, -1)

    def _window(self, offset: tuple[int, ...]) -> tuple[slice, ...]:
        axes = zip(offset, self.spec.out_spatial, self.spec.stride, strict=True)
        return tuple(slice(o, o + n * s, s) for o, n, s in axes)

    def _inside(self) -> tuple[slice, ...]:
        return (slice(None), *(slice(p, p + n) for p, n in zip(self.spec.pad, self.spec.in_shape[2:], strict=True)))

    def _outputs(self, g: int) -> slice:
        n = self.spec.n_output // self.spec.group
        return slice(g * n, (g + 1) * n)

    def _inputs(self, g: int) -> slice:
        return slice(g * self._per_group, (g + 1) * self._per_group)


class Deconvolution:
    """The three passes of a deconvolution, on the CPU or on a device, by the plan of the convolution from top to
    bottom, without bias, and the backend's ``add_bias`` and ``add_gradients``."""

    def __init__(self, plan: Any, add_bias: Callable[[Any, Any, float | None], None],
                 add_gradients: Callable[[Any, Any, bool], None]) -> None:
        self._plan, self._add_bias, self._add_gradients = plan, add_bias, add_gradients
        self._n_output = plan.spec.in_shape[1]

    def forward(self, x: Any, w: Any, b: Any, y: Any, relu_slope: float | None = None) -> None:
        self._plan.backward_data(x, w, y)
        self._add_bias(y.reshape(-1, self._n_output), b, relu_slope)

    def backward_data(self, gy: Any, w: Any, gx: Any) -> None:
        self._plan.forward(gy, w, None, gx)

    def backward_weights(self, x: Any, gy: Any, gw: Any, gb: Any, overwrite: bool = False) -> None:
        self._plan.backward_weights(gy, x, gw, None, overwrite)
        if gb is not None:
            self._add_gradients(gy.reshape(-1, self._n_output), gb, overwrite)

    def working_bytes(self) -> dict[str, int]:
        """Bytes by name of the working arrays of all passes, which the plans of a thread share, as far as known."""
        found: dict[str, int] = getattr(self._plan, "working_bytes", dict)()
        return found
