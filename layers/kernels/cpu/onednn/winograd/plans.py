"""Convolutions by Winograd's filtering: forward, backward to the bottom and the weights' gradient, and their plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from scaffe.layers.kernels.cpu.arrays import zeros
from scaffe.layers.kernels.cpu.conv.weight_gradients import FilteringPlan
from scaffe.layers.kernels.cpu.onednn.convolution import Convolution
from scaffe.layers.kernels.cpu.onednn.library import Library
from scaffe.layers.kernels.cpu.onednn.primitive import Arg, Primitive, following, strided
from scaffe.layers.kernels.cpu.onednn.winograd.tiling import (
    Shape,
    Tiling,
    array,
    block_bytes,
    bytes_of,
    from_channel,
    has_faster_gradient,
    products,
)
from scaffe.layers.kernels.cpu.threads.parts import in_units
from scaffe.layers.kernels.cpu.threads.prepared_calls import NativeCalls, prepare_units
from scaffe.layers.kernels.cpu.winograd import (
    filter_gradient,
    filter_tiles,
    flipped,
    input_tiles,
    output_gradient_tiles,
    output_images,
)
from scaffe.layers.kernels.specs import ConvSpec, plain_strides


class Filtering:
    """A ``weight_gradients.Filtering``, for a bottom's gradient if ``is_flipped``. If the weights ``stay``, they are
    transformed once for many runs. The bottom is transformed, multiplied and transformed back in blocks of tiles that
    stay in the cache."""

    def __init__(self, lib: Library, spec: ConvSpec, stays: bool = False, is_flipped: bool = False) -> None:
        self.spec, self._is_flipped, self._tiling = spec, is_flipped, Tiling.of(spec)
        self._inputs, self._outputs = (n // spec.group for n in (spec.in_shape[1], spec.n_output))
        self._block = self._tiling.block_rows(block_bytes(spec), max(spec.in_shape[1], spec.n_output))
        self._shape = Shape(self._tiling.n_products, self._block * self._tiling.columns, self._inputs, self._outputs,
                            spec.in_shape[1], spec.n_output)
        self._products = products(lib, self._shape, stays)

    @property
    def weights_shape(self) -> tuple[int, int]:
        return self.spec.group, self._products.n_weights

    def working_bytes(self) -> dict[str, int]:
        return bytes_of(self._shape.bottom, self._shape.top, self._shape.weights)

    def transform_weights(self, w: np.ndarray, weights: np.ndarray) -> None:
        filters = w.reshape(self.spec.group, w.shape[0] // self.spec.group, -1, w.shape[2] * w.shape[3])
        filters = flipped(filters) if self._is_flipped else filters
        u = array("weights", self._shape.weights)
        for group, target in zip(filters, weights, strict=True):
            in_units(filter_tiles, 1, self._inputs, None, self._tiling.taps, group, u)
            self._products.pack(u, target)

    def run(self, x: np.ndarray, weights: np.ndarray, b: np.ndarray, y: np.ndarray, added: np.ndarray | None = None,
            slope: float = 1) -> None:
        for n_rows, into, out_of in self._transforms(x, b, y, added, slope):
            in_units(input_tiles, 1, n_rows, None, *into)
            for group, each in enumerate(weights):
                self._products.run(group, each)
            in_units(output_images, 1, n_rows, None, *out_of)

    def prepare_calls(self, x: np.ndarray, weights: np.ndarray, b: np.ndarray, y: np.ndarray, added: np.ndarray | None,
             slope: float) -> NativeCalls | None:
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
        (images, tops), tiles = laid_out(self.spec, x, y), (self._tiling.rows, self._tiling.columns)
        plus = tops if added is None else added.reshape(tops.shape)
        v, m, taps = array("bottom", self._shape.bottom), array("top", self._shape.top), self._tiling.taps
        n_rows = self._tiling.n_rows
        for first in range(0, n_rows, self._block):
            yield (min(self._block, n_rows - first), (taps, images, first, tiles, self.spec.pad, v),
                   (taps, m, b, plus, added is not None, np.float32(slope), first, tiles, tops))


def laid_out(spec: ConvSpec, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bottom and top as (N, H, W, C)."""
    n, inputs, *image = spec.in_shape
    return x.reshape(n, *image, inputs), y.reshape(n, *spec.out_spatial, spec.n_output)


BLOCK_BYTES = 1 << 23
"""Size of a block's transformed bottom or top; each block reads and writes the sums of products once."""


class WeightGradient:
    """The weights' gradient of one geometry: products of transformed bottoms and gradients, summed over blocks."""

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
            [(Arg.SRC, v), (Arg.WEIGHTS, m), (Arg.DST, u)])
            for attribute in (None, following(lib, None, None, in_place=True)))
        self._v_shape, self._m_shape = ((n_products, n_tiles, n) for n in channels)
        self._u_shape = (spec.group, *shape)

    def working_bytes(self) -> dict[str, int]:
        return bytes_of(self._v_shape, self._m_shape, self._u_shape)

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, overwrite: bool) -> None:
        spec, (images, tops) = self._spec, laid_out(self._spec, x, gy)
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


class DirectGradient:
    """The weights' gradient by oneDNN's direct kernel, where that is as fast; it has working memory of its own."""

    def __init__(self, lib: Library, spec: ConvSpec) -> None:
        self._plan = Convolution(lib, replace(spec, bias=False))

    def working_bytes(self) -> dict[str, int]:
        return {}

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, overwrite: bool) -> None:
        self._plan.backward_weights(x, gy, gw, None, overwrite)


class Inference:
    """An InferencePlan of a geometry for which ``is_faster`` holds; arguments and errors as for oneDNN's own."""

    def __init__(self, lib: Library, spec: ConvSpec, relu_slope: float | None) -> None:
        self._filtering, self._slope = Filtering(lib, spec, stays=True), 1 if relu_slope is None else relu_slope
        self._w = zeros(prod(self._filtering.weights_shape)).reshape(self._filtering.weights_shape)
        self._b = np.zeros(spec.n_output, np.float32)

    def set_weights(self, w: np.ndarray, b: np.ndarray) -> None:
        self._filtering.transform_weights(np.ascontiguousarray(w, np.float32), self._w)
        self._b[...] = b

    def share_weights(self, other: Inference) -> None:
        self._w, self._b = other._w, other._b

    def forward(self, x: np.ndarray, y: np.ndarray, added: np.ndarray | None = None) -> None:
        self._filtering.run(x, self._w, self._b, y, added, self._slope)

    def prepare_calls(self, x: np.ndarray, y: np.ndarray, added: np.ndarray | None = None) -> NativeCalls | None:
        return self._filtering.prepare_calls(x, self._w, self._b, y, added, self._slope)


class Training(FilteringPlan):
    """A plan for training of a geometry for which ``is_faster_in_training`` holds. Raises OnednnError if oneDNN has no
    kernel for it."""

    def __init__(self, lib: Library, spec: ConvSpec) -> None:
        gradient = WeightGradient if has_faster_gradient(spec) else DirectGradient
        super().__init__(spec, partial(Filtering, lib), partial(gradient, lib))
