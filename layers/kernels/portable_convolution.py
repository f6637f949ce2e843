"""Convolution by im2col and BLAS, any dtype: where oneDNN is missing, for gradient checks, as a peer in tests."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from layers.kernels.specs import ConvSpec


class Convolution:
    """The three passes of one geometry, image by image, on channels-last arrays and weights in Caffe's order.

    Legend: N images, C input and O output channels, G groups, s spatial axes, k kernel axes, K = product of k.

    Args:
        spec: the geometry, any number of spatial axes.
    """

    def __init__(self, spec: ConvSpec) -> None:
        self.spec = spec
        self._n_axes = len(spec.kernel)
        self._padded = tuple(n + 2 * p for n, p in zip(spec.in_shape[2:], spec.pad))
        self._per_group = spec.in_shape[1] // spec.group
        self._n_out = prod(spec.out_spatial)
        self._offsets = list(product(*(range(0, k * d, d) for k, d in zip(spec.kernel, spec.dilation))))

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
        """y = x * w + b, with ReLU of that slope where one is given."""
        x, y = self._images(x, y)
        for image, out in zip(x, y):
            for g, (kernel, columns) in enumerate(zip(self._kernels(w), self._columns(image))):
                out[:, self._outputs(g)] = columns @ kernel  # (S, K C/G) (K C/G, O/G)
        if b is not None:
            y += b
        if relu_slope is not None:
            y[...] = np.where(y > 0, y, relu_slope * y)

    def backward_data(self, gy: np.ndarray, w: np.ndarray, gx: np.ndarray) -> None:
        """Write the bottom's gradient."""
        gx, gy = self._images(gx, gy)
        for gimage, gout in zip(gx, gy):
            padded = np.zeros((*self._padded, self.spec.in_shape[1]), gx.dtype)
            for g, kernel in enumerate(self._kernels(w)):
                gcolumns = gout[:, self._outputs(g)] @ kernel.T  # (S, K C/G)
                gcolumns = gcolumns.reshape(*self.spec.out_spatial, len(self._offsets), -1)
                for i, offset in enumerate(self._offsets):
                    padded[(*self._window(offset), self._inputs(g))] += gcolumns[..., i, :]
            gimage[...] = padded[self._inside()]

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        """Add the weights' and the bias's gradients to gw and gb, or write them."""
        if overwrite:
            gw[...] = 0
            if gb is not None:
                gb[...] = 0
        x, gy = self._images(x, gy)
        for image, gout in zip(x, gy):
            for g, columns in enumerate(self._columns(image)):
                part = columns.T @ gout[:, self._outputs(g)]  # (K C/G, O/G)
                gw[self._outputs(g)] += self._to_caffe(part)
        if gb is not None:
            gb += gy.sum((0, 1))

    # -- parts ---------------------------------------------------------------------------------------------
    def _images(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        spec = self.spec
        return (x.reshape(spec.in_shape[0], *spec.in_shape[2:], spec.in_shape[1]),
                y.reshape(spec.in_shape[0], self._n_out, spec.n_output))

    def _kernels(self, w: np.ndarray) -> list[np.ndarray]:
        """Per group (K C/G, O/G), the kernel's place varying slowest."""
        rows = np.moveaxis(w.reshape(self.spec.weight_shape), 1, -1).reshape(self.spec.n_output, -1)
        return [rows[self._outputs(g)].T for g in range(self.spec.group)]

    def _to_caffe(self, part: np.ndarray) -> np.ndarray:
        """(K C/G, O/G) to (O/G, C/G, k...)."""
        return np.moveaxis(part.T.reshape(-1, *self.spec.kernel, self._per_group), -1, 1)

    def _columns(self, image: np.ndarray) -> list[np.ndarray]:
        """Per group the image's windows, (S, K C/G)."""
        padded = np.pad(image, [(p, p) for p in self.spec.pad] + [(0, 0)])
        windows = np.stack([padded[self._window(offset)] for offset in self._offsets], self._n_axes)
        return [windows[..., self._inputs(g)].reshape(self._n_out, -1) for g in range(self.spec.group)]

    def _window(self, offset: tuple[int, ...]) -> tuple[slice, ...]:
        return tuple(slice(o, o + n * s, s) for o, n, s in zip(offset, self.spec.out_spatial, self.spec.stride))

    def _inside(self) -> tuple[slice, ...]:
        return tuple(slice(p, p + n) for p, n in zip(self.spec.pad, self.spec.in_shape[2:]))

    def _outputs(self, g: int) -> slice:
        n = self.spec.n_output // self.spec.group
        return slice(g * n, (g + 1) * n)

    def _inputs(self, g: int) -> slice:
        return slice(g * self._per_group, (g + 1) * self._per_group)
