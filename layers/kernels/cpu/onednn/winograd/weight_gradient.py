"""The gradient of a convolution's weights, by the transpose of Winograd's filtering."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from scaffe.layers.kernels.cpu.onednn.library import Library
from scaffe.layers.kernels.cpu.onednn.primitive import DST, SRC, WEIGHTS, Primitive, strided, sum_attribute
from scaffe.layers.kernels.cpu.onednn.winograd.tiling import Tiling
from scaffe.layers.kernels.cpu.onednn.winograd.workspace import array, from_channel
from scaffe.layers.kernels.cpu.parts import in_units
from scaffe.layers.kernels.cpu.winograd.images import transform_bottom, transform_gradient
from scaffe.layers.kernels.cpu.winograd.weights import collect_gradient
from scaffe.layers.kernels.specs import ConvSpec, plain_strides

STRIP_BYTES = 1 << 23
"""Of the transformed bottom or top: each strip reads and writes the sums of products once."""


class WeightGradient:
    """One geometry. Products of transformed bottoms and gradients are summed over strips of tiles.

    Args:
        lib: the library.
        spec: the geometry.

    Raises:
        OnednnError: oneDNN has no kernel for it.
    """

    def __init__(self, lib: Library, spec: ConvSpec) -> None:
        self._spec, self._tiling = spec, Tiling.of(spec)
        channels = spec.in_shape[1], spec.n_output
        self._inputs, self._outputs = (n // spec.group for n in channels)
        strip = self._tiling.strip(STRIP_BYTES, max(channels))
        n_rows = self._tiling.n_rows
        self._strips = list(pairwise([*range(0, n_rows, strip), n_rows]))
        n_tiles = strip * self._tiling.columns
        n_products = self._tiling.n_products
        shape = (n_products, self._inputs, self._outputs)
        v = strided(lib, (n_products, self._inputs, n_tiles), (n_tiles * channels[0], 1, channels[0]))
        m = strided(lib, (n_products, n_tiles, self._outputs), (n_tiles * channels[1], channels[1], 1))
        u = strided(lib, shape, plain_strides(shape))
        self._write, self._add = (Primitive(
            lib, lib.make("matmul_primitive_desc_create", lib.engine, v, m, None, u, attribute),
            [(SRC, v), (WEIGHTS, m), (DST, u)]) for attribute in (None, sum_attribute(lib)))
        self._v_shape, self._m_shape = ((n_products, n_tiles, n) for n in channels)
        self._u_shape = (spec.group, *shape)

    @property
    def working_shapes(self) -> dict[str, tuple[int, ...]]:
        """The arrays of working memory that a run uses, by name."""
        return {"bottom": self._v_shape, "top": self._m_shape, "weights": self._u_shape}

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, overwrite: bool) -> None:
        """Add the gradient to gw, in Caffe's order, or write it. Images lie channels-last."""
        spec = self._spec
        images = x.reshape(spec.in_shape[0], *spec.in_shape[2:], spec.in_shape[1])
        tops = gy.reshape(spec.in_shape[0], *spec.out_spatial, spec.n_output)
        u = array("weights", self._u_shape)
        for first, stop in self._strips:
            self._add_strip(first, stop, images, tops, u)
        filters = gw.reshape(spec.group, self._outputs, self._inputs, -1)
        for sums, target in zip(u, filters, strict=True):
            in_units(collect_gradient, 1, self._inputs, None, self._tiling.taps, sums, overwrite, target)

    def _add_strip(self, first: int, stop: int, images: np.ndarray, tops: np.ndarray, u: np.ndarray) -> None:
        """Rows of tiles [first, stop); where a strip ends early, the rest of it counts as zeros."""
        taps, tiles = self._tiling.taps, (self._tiling.rows, self._tiling.columns)
        n_tiles = (stop - first) * self._tiling.columns
        v, m = array("bottom", self._v_shape), array("top", self._m_shape)
        v[:, n_tiles:], m[:, n_tiles:] = 0, 0
        in_units(transform_bottom, 1, stop - first, None, taps, images, first, tiles, self._spec.pad, v)
        in_units(transform_gradient, 1, stop - first, None, taps, tops, first, tiles, m)
        product = self._add if first else self._write
        for group, sums in enumerate(u):
            product.run(from_channel("bottom", self._v_shape, group * self._inputs),
                        from_channel("top", self._m_shape, group * self._outputs), sums)
