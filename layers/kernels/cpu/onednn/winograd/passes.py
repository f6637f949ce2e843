"""The passes of a convolution by Winograd's filtering: forward, backward to the bottom, and the weights' gradient."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from scaffe.layers.kernels.cpu.onednn.library import Library
from scaffe.layers.kernels.cpu.onednn.primitive import DST, SRC, WEIGHTS, Primitive, strided, sum_attribute
from scaffe.layers.kernels.cpu.onednn.winograd.products import Shape, products
from scaffe.layers.kernels.cpu.onednn.winograd.tiling import Tiling, array, block_bytes, from_channel
from scaffe.layers.kernels.cpu.threads.parts import in_units
from scaffe.layers.kernels.cpu.threads.prepared_calls import NativeCalls, prepare_units
from scaffe.layers.kernels.cpu.winograd.images import (
    filter_gradient,
    filter_tiles,
    flipped,
    input_tiles,
    output_gradient_tiles,
    output_images,
)
from scaffe.layers.kernels.specs import ConvSpec, plain_strides


class Filtering:
    """A Winograd convolution of one geometry.

    The bottom is transformed, multiplied and transformed back in blocks of tiles that stay in the cache.

    Args:
        lib: the library.
        spec: the geometry.
        stays: whether ``transform_weights`` is called once for many runs.
        is_flipped: whether this convolution computes a bottom's gradient, from the forward one's weights.

    Raises:
        OnednnError: oneDNN has no kernel for it.
    """

    def __init__(self, lib: Library, spec: ConvSpec, stays: bool = False, is_flipped: bool = False) -> None:
        self.spec, self._is_flipped, self._tiling = spec, is_flipped, Tiling.of(spec)
        self._inputs, self._outputs = (n // spec.group for n in (spec.in_shape[1], spec.n_output))
        self._block = self._tiling.block_rows(block_bytes(spec), max(spec.in_shape[1], spec.n_output))
        self._shape = Shape(self._tiling.n_products, self._block * self._tiling.columns, self._inputs, self._outputs,
                            spec.in_shape[1], spec.n_output)
        self._products = products(lib, self._shape, stays)

    @property
    def weights_shape(self) -> tuple[int, int]:
        """Shape of the transformed weights that ``transform_weights`` writes."""
        return self.spec.group, self._products.n_weights

    @property
    def working_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"bottom": self._shape.bottom, "top": self._shape.top, "weights": self._shape.weights}

    def transform_weights(self, w: np.ndarray, weights: np.ndarray) -> None:
        """Transform weights.

        Args:
            w: the weights in Caffe's order, contiguous.
            weights: receives the transformed weights, of ``weights_shape``.
        """
        filters = w.reshape(self.spec.group, w.shape[0] // self.spec.group, -1, w.shape[2] * w.shape[3])
        filters = flipped(filters) if self._is_flipped else filters
        u = array("weights", self._shape.weights)
        for group, target in zip(filters, weights, strict=True):
            in_units(filter_tiles, 1, self._inputs, None, self._tiling.taps, group, u)
            self._products.pack(u, target)

    def run(self, x: np.ndarray, weights: np.ndarray, b: np.ndarray, y: np.ndarray, added: np.ndarray | None = None,
            slope: float = 1) -> None:
        """y = x * w + b, plus ``added``, then a ReLU of that slope below 0 (1: none). Images lie channels-last."""
        for n_rows, into, out_of in self._transforms(x, b, y, added, slope):
            in_units(input_tiles, 1, n_rows, None, *into)
            for group, each in enumerate(weights):
                self._products.run(group, each)
            in_units(output_images, 1, n_rows, None, *out_of)

    def prepare_calls(self, x: np.ndarray, weights: np.ndarray, b: np.ndarray, y: np.ndarray, added: np.ndarray | None,
             slope: float) -> NativeCalls | None:
        """Prepared calls that do what ``run`` does: for each block the input transform, each group's products, and the
        output transform."""
        made = []
        for n_rows, into, out_of in self._transforms(x, b, y, added, slope):
            made += [prepare_units(input_tiles, 1, n_rows, None, *into),
                     *(self._products.prepare_calls(group, each) for group, each in enumerate(weights)),
                     prepare_units(output_images, 1, n_rows, None, *out_of)]
        calls = [each for each in made if each is not None]
        return sum(calls[1:], start=calls[0]) if len(calls) == len(made) else None

    def _transforms(self, x: np.ndarray, b: np.ndarray, y: np.ndarray, added: np.ndarray | None,
                    slope: float) -> Iterator[tuple[int, tuple[Any, ...], tuple[Any, ...]]]:
        """For each block its number of rows of tiles, and the arguments of both transforms after start and stop."""
        images, tops = self._images(x), self._tops(y)
        plus, tiles = tops if added is None else self._tops(added), (self._tiling.rows, self._tiling.columns)
        v, m, taps = array("bottom", self._shape.bottom), array("top", self._shape.top), self._tiling.taps
        n_rows = self._tiling.n_rows
        for first in range(0, n_rows, self._block):
            yield (min(self._block, n_rows - first), (taps, images, first, tiles, self.spec.pad, v),
                   (taps, m, b, plus, added is not None, np.float32(slope), first, tiles, tops))

    def _images(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.spec.in_shape[0], *self.spec.in_shape[2:], self.spec.in_shape[1])

    def _tops(self, y: np.ndarray) -> np.ndarray:
        return y.reshape(self.spec.in_shape[0], *self.spec.out_spatial, self.spec.n_output)


BLOCK_BYTES = 1 << 23
"""Size of a block's transformed bottom or top; each block reads and writes the sums of products once."""


class WeightGradient:
    """The weights' gradient of one geometry: products of transformed bottoms and gradients, summed over blocks.

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
        block = self._tiling.block_rows(BLOCK_BYTES, max(channels))
        n_rows = self._tiling.n_rows
        self._blocks = list(pairwise([*range(0, n_rows, block), n_rows]))
        n_tiles = block * self._tiling.columns
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
        return {"bottom": self._v_shape, "top": self._m_shape, "weights": self._u_shape}

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, overwrite: bool) -> None:
        """Add the gradient to gw, in Caffe's order, or overwrite it. Images are channels-last."""
        spec = self._spec
        images = x.reshape(spec.in_shape[0], *spec.in_shape[2:], spec.in_shape[1])
        tops = gy.reshape(spec.in_shape[0], *spec.out_spatial, spec.n_output)
        u = array("weights", self._u_shape)
        for first, stop in self._blocks:
            self._add_block(first, stop, images, tops, u)
        filters = gw.reshape(spec.group, self._outputs, self._inputs, -1)
        for sums, target in zip(u, filters, strict=True):
            in_units(filter_gradient, 1, self._inputs, None, self._tiling.taps, sums, overwrite, target)

    def _add_block(self, first: int, stop: int, images: np.ndarray, tops: np.ndarray, u: np.ndarray) -> None:
        """Add the products of rows of tiles [first, stop); a shorter last block is filled up with zeros."""
        taps, tiles = self._tiling.taps, (self._tiling.rows, self._tiling.columns)
        n_tiles = (stop - first) * self._tiling.columns
        v, m = array("bottom", self._v_shape), array("top", self._m_shape)
        v[:, n_tiles:], m[:, n_tiles:] = 0, 0
        in_units(input_tiles, 1, stop - first, None, taps, images, first, tiles, self._spec.pad, v)
        in_units(output_gradient_tiles, 1, stop - first, None, taps, tops, first, tiles, m)
        product = self._add if first else self._write
        for group, sums in enumerate(u):
            product.run(from_channel("bottom", self._v_shape, group * self._inputs),
                        from_channel("top", self._m_shape, group * self._outputs), sums)
