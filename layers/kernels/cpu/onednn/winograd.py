"""3x3 convolutions in inference by Winograd's minimal filtering: our transforms around oneDNN's matrix products."""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.layers.kernels.cpu.onednn.library import Library
from scaffe.layers.kernels.cpu.onednn.primitive import (
    DST,
    QUERY_WEIGHTS,
    SRC,
    WEIGHTS,
    Primitive,
    Reorder,
    any_layout,
    scratch,
    strided,
)
from scaffe.layers.kernels.cpu.parts import in_ranges
from scaffe.layers.kernels.cpu.winograd import N_PRODUCTS, TILE, transform_bottom, transform_top, transform_weights
from scaffe.layers.kernels.specs import ConvSpec, plain_strides

FEWEST_CHANNELS, FEWEST_TILES = 32, 16
STRIP_BYTES = (1 << 19, 1 << 23)
"""Least and most bytes of the transformed bottom at a time: in between, as many as the weights have."""


def is_faster(spec: ConvSpec) -> bool:
    """Whether it beats oneDNN's direct convolution, as measured with AVX-512 (docs/compute.md).

    With fewer tiles the weights, of which there are four times as many, are read for too few products; with fewer
    channels the transforms cost more than the products that they save.
    """
    _, n_in, *image = spec.in_shape
    geometry = (spec.kernel, spec.stride, spec.dilation, spec.group) == ((3, 3), (1, 1), (1, 1), 1)
    return (geometry and max(spec.pad, default=0) <= 2 and len(image) == 2
            and min(n_in, spec.n_output) >= FEWEST_CHANNELS and spec.in_shape[0] * prod(_tiles(spec)) >= FEWEST_TILES)


class Winograd:
    """One geometry, for which ``is_faster`` holds; see ``InferencePlan``.

    The bottom is transformed, multiplied and transformed back in strips of rows of tiles that stay in the cache.

    Args:
        lib, spec, relu_slope, adds: as for ``Convolution``.

    Raises:
        OnednnError: oneDNN has no kernel for it.
    """

    def __init__(self, lib: Library, spec: ConvSpec, relu_slope: float | None, adds: bool) -> None:
        n_in, n_out = spec.in_shape[1], spec.n_output
        self._spec, self._tiles, self._slope = spec, _tiles(spec), np.float32(1 if relu_slope is None else relu_slope)
        self._n_rows = spec.in_shape[0] * self._tiles[0]
        wanted = min(max(4 * N_PRODUCTS * n_in * n_out, STRIP_BYTES[0]), STRIP_BYTES[1])
        n_strips = -(-self._n_rows // max(wanted // (4 * N_PRODUCTS * self._tiles[1] * max(n_in, n_out)), 1))
        self._strip = -(-self._n_rows // n_strips)
        n_tiles = self._strip * self._tiles[1]
        self._v, self._m = (np.zeros((N_PRODUCTS, n_tiles, n), np.float32) for n in (n_in, n_out))
        self._b, self._adds = np.zeros(n_out, np.float32), adds
        shapes = [self._v.shape, (N_PRODUCTS, n_in, n_out), self._m.shape]
        v, plain, m = (strided(lib, shape, plain_strides(shape)) for shape in shapes)
        desc = lib.make("matmul_primitive_desc_create", lib.engine, v, any_layout(lib, shapes[1]), None, m, None)
        w = lib.query_md(desc, QUERY_WEIGHTS, 0)
        self._product = Primitive(lib, desc, [(SRC, v), (WEIGHTS, w), (DST, m)])
        self._reorder, self._w = Reorder(lib, plain, w), scratch(lib, w)

    def take(self, w: np.ndarray, b: np.ndarray) -> None:
        """See InferencePlan."""
        self._reorder.run(transform_weights(w), self._w)
        self._b[...] = b

    def forward(self, x: np.ndarray, y: np.ndarray, added: np.ndarray | None = None) -> None:
        """See InferencePlan."""
        n, n_in, height, width = self._spec.in_shape
        images, tops = x.reshape(n, height, width, n_in), y.reshape(n, *self._spec.out_spatial, self._spec.n_output)
        plus = tops if added is None else added.reshape(tops.shape)
        for first in range(0, self._n_rows, self._strip):
            self._run_strip(first, images, plus, tops)

    def _run_strip(self, first: int, images: np.ndarray, plus: np.ndarray, tops: np.ndarray) -> None:
        """Rows of tiles from ``first`` on."""
        tiles, count = self._tiles, min(self._strip, self._n_rows - first)
        in_ranges(count, lambda start, stop: transform_bottom(
            images, first + start, first + stop, tiles, self._spec.pad, self._v[:, start * tiles[1]:]))
        self._product.run(self._v, self._w, self._m)
        in_ranges(count, lambda start, stop: transform_top(
            self._m[:, start * tiles[1]:], self._b, plus, self._adds, self._slope, first + start, first + stop, tiles,
            tops))


def _tiles(spec: ConvSpec) -> tuple[int, int]:
    """Rows of tiles in an image, and tiles in a row."""
    height, width = spec.out_spatial
    return -(-height // TILE), -(-width // TILE)
