"""A convolution's forward pass, or its backward pass to the bottom, on weights that have been transformed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from scaffe.layers.kernels.cpu.bound_kernels import bind_units
from scaffe.layers.kernels.cpu.calls import Calls
from scaffe.layers.kernels.cpu.onednn.library import Library
from scaffe.layers.kernels.cpu.onednn.winograd.products import Shape, products
from scaffe.layers.kernels.cpu.onednn.winograd.tiling import Tiling, strip_bytes
from scaffe.layers.kernels.cpu.onednn.winograd.workspace import array
from scaffe.layers.kernels.cpu.parts import in_units
from scaffe.layers.kernels.cpu.winograd.images import transform_bottom, transform_top
from scaffe.layers.kernels.cpu.winograd.weights import transform_weights, turned
from scaffe.layers.kernels.specs import ConvSpec


class Filtering:
    """One geometry. The bottom is transformed, multiplied and transformed back in strips that stay in the cache.

    Args:
        lib: the library.
        spec: the geometry.
        stays: whether weights are taken once for many runs.
        is_turned: whether ``take`` gets the weights of the convolution whose gradients this one carries to the bottom.

    Raises:
        OnednnError: oneDNN has no kernel for it.
    """

    def __init__(self, lib: Library, spec: ConvSpec, stays: bool = False, is_turned: bool = False) -> None:
        self.spec, self._is_turned, self._tiling = spec, is_turned, Tiling.of(spec)
        self._inputs, self._outputs = (n // spec.group for n in (spec.in_shape[1], spec.n_output))
        self._strip = self._tiling.strip(strip_bytes(spec), max(spec.in_shape[1], spec.n_output))
        self._shape = Shape(self._tiling.n_products, self._strip * self._tiling.columns, self._inputs, self._outputs,
                            spec.in_shape[1], spec.n_output)
        self._products = products(lib, self._shape, stays)

    @property
    def taken_shape(self) -> tuple[int, int]:
        """The shape of the array that ``take`` fills."""
        return self.spec.group, self._products.n_weights

    @property
    def working_shapes(self) -> dict[str, tuple[int, ...]]:
        """The arrays of working memory that ``take`` and ``run`` use, by name."""
        return {"bottom": self._shape.bottom, "top": self._shape.top, "weights": self._shape.weights}

    def take(self, w: np.ndarray, taken: np.ndarray) -> None:
        """Transform weights.

        Args:
            w: in Caffe's order, contiguous.
            taken: of ``taken_shape``; gets them.
        """
        filters = w.reshape(self.spec.group, w.shape[0] // self.spec.group, -1, w.shape[2] * w.shape[3])
        filters = turned(filters) if self._is_turned else filters
        u = array("weights", self._shape.weights)
        for group, target in zip(filters, taken, strict=True):
            in_units(transform_weights, 1, self._inputs, None, self._tiling.taps, group, u)
            self._products.take(u, target)

    def run(self, x: np.ndarray, taken: np.ndarray, b: np.ndarray, y: np.ndarray, added: np.ndarray | None = None,
            slope: float = 1) -> None:
        """y = x * w + b, plus ``added``, then a ReLU of that slope below 0 (1: none). Images lie channels-last."""
        for n_rows, into, out_of in self._transforms(x, b, y, added, slope):
            in_units(transform_bottom, 1, n_rows, None, *into)
            for group, weights in enumerate(taken):
                self._products.run(group, weights)
            in_units(transform_top, 1, n_rows, None, *out_of)

    def bind(self, x: np.ndarray, taken: np.ndarray, b: np.ndarray, y: np.ndarray, added: np.ndarray | None,
             slope: float) -> Calls | None:
        """What ``run`` does as calls made ready: of each strip the transform, each group's products, and the transform
        back."""
        made = []
        for n_rows, into, out_of in self._transforms(x, b, y, added, slope):
            made += [bind_units(transform_bottom, 1, n_rows, None, *into),
                     *(self._products.bind(group, weights) for group, weights in enumerate(taken)),
                     bind_units(transform_top, 1, n_rows, None, *out_of)]
        calls = [each for each in made if each is not None]
        return sum(calls[1:], start=calls[0]) if len(calls) == len(made) else None

    def _transforms(self, x: np.ndarray, b: np.ndarray, y: np.ndarray, added: np.ndarray | None,
                    slope: float) -> Iterator[tuple[int, tuple[Any, ...], tuple[Any, ...]]]:
        """Of each strip its rows of tiles, and the arguments of the two transforms behind start and stop."""
        images, tops = self._images(x), self._tops(y)
        plus, tiles = tops if added is None else self._tops(added), (self._tiling.rows, self._tiling.columns)
        v, m, taps = array("bottom", self._shape.bottom), array("top", self._shape.top), self._tiling.taps
        n_rows = self._tiling.n_rows
        for first in range(0, n_rows, self._strip):
            yield (min(self._strip, n_rows - first), (taps, images, first, tiles, self.spec.pad, v),
                   (taps, m, b, plus, added is not None, np.float32(slope), first, tiles, tops))

    def _images(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.spec.in_shape[0], *self.spec.in_shape[2:], self.spec.in_shape[1])

    def _tops(self, y: np.ndarray) -> np.ndarray:
        return y.reshape(self.spec.in_shape[0], *self.spec.out_spatial, self.spec.n_output)
