"""Matrix products of transformed images and transformed weights, one for each position in a tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.register_tiles import COLUMNS
from scaffe.layers.kernels.cpu.arrays import zeros
from scaffe.layers.kernels.cpu.conv.panels import in_panels, is_fast, multiply_matrices
from scaffe.layers.kernels.cpu.onednn.library import Library
from scaffe.layers.kernels.cpu.onednn.primitive import (
    DST,
    QUERY_WEIGHTS,
    SRC,
    WEIGHTS,
    Primitive,
    Reorder,
    any_layout,
    strided,
)
from scaffe.layers.kernels.cpu.onednn.winograd.tiling import from_channel
from scaffe.layers.kernels.cpu.threads.parts import in_units
from scaffe.layers.kernels.cpu.threads.prepared_calls import NativeCalls, prepare_units
from scaffe.layers.kernels.specs import plain_strides

MOST_TILES = 128
"""For at most this many tiles our products are faster than oneDNN's, which wait for the weights from memory."""


@dataclass(frozen=True)
class Shape:
    """Shapes of the matrices of one group of channels: a product for each position in a tile, ``n_tiles`` rows of the
    bottom's and the top's matrices, and their columns; of all groups together these are the distance between two
    rows."""

    n_products: int
    n_tiles: int
    inputs: int
    outputs: int
    all_inputs: int
    all_outputs: int

    @property
    def weights(self) -> tuple[int, int, int]:
        """The shape of the weights."""
        return self.n_products, self.inputs, self.outputs

    @property
    def bottom(self) -> tuple[int, int, int]:
        """The shape of the transformed bottom, all groups."""
        return self.n_products, self.n_tiles, self.all_inputs

    @property
    def top(self) -> tuple[int, int, int]:
        """The shape of the products, all groups."""
        return self.n_products, self.n_tiles, self.all_outputs


class OnednnProducts:
    """The products by oneDNN's matmul; OnednnError if it has none. ``n_weights`` are the elements of a group's weights
    in the layout that ``run`` takes."""

    def __init__(self, lib: Library, shape: Shape) -> None:
        self._shape = shape
        plain = strided(lib, shape.weights, plain_strides(shape.weights))
        v, m = (strided(lib, (n_products, n_tiles, n), (n_tiles * every, every, 1))
                for (n_products, n_tiles, every), n in ((shape.bottom, shape.inputs), (shape.top, shape.outputs)))
        desc = lib.make("matmul_primitive_desc_create", lib.engine, v, any_layout(lib, shape.weights), None, m, None)
        w = lib.query_md(desc, QUERY_WEIGHTS, 0)
        self._product, self._reorder = Primitive(lib, desc, [(SRC, v), (WEIGHTS, w), (DST, m)]), Reorder(lib, plain, w)
        self.n_weights = lib.memory_desc_get_size(w) // 4

    def pack(self, u: np.ndarray, packed: np.ndarray) -> None:
        """Write the transformed weights ``u`` to ``packed``, in the layout that ``run`` takes."""
        self._reorder.run(u, packed)

    def run(self, group: int, packed: np.ndarray) -> None:
        """Multiply a group's part of the working array "bottom" by its weights, into the working array "top"."""
        self._product.run(*self._arrays(group, packed))

    def prepare_calls(self, group: int, packed: np.ndarray) -> NativeCalls:
        return self._product.prepare_calls(*self._arrays(group, packed))

    def _arrays(self, group: int, packed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return (from_channel("bottom", self._shape.bottom, group * self._shape.inputs), packed,
                from_channel("top", self._shape.top, group * self._shape.outputs))


class PanelProducts:
    """The products by our own kernel; see ``OnednnProducts``."""

    def __init__(self, shape: Shape) -> None:
        self._shape, self.n_weights = shape, shape.n_products * shape.inputs * shape.outputs
        self._zeros = zeros(shape.outputs)

    def pack(self, u: np.ndarray, packed: np.ndarray) -> None:
        panels = in_panels(u)
        packed.reshape(panels.shape)[...] = panels

    def run(self, group: int, packed: np.ndarray) -> None:
        in_units(_multiply, 1, self._shape.n_products, None, *self._arguments(group, packed))

    def prepare_calls(self, group: int, packed: np.ndarray) -> NativeCalls | None:
        return prepare_units(_multiply, 1, self._shape.n_products, None, *self._arguments(group, packed))

    def _arguments(self, group: int, packed: np.ndarray) -> tuple[Any, ...]:
        shape = self._shape
        v = from_channel("bottom", shape.bottom, group * shape.inputs)
        m = from_channel("top", shape.top, group * shape.outputs)
        rows = shape.n_tiles, shape.n_tiles, shape.all_inputs
        return v, rows, shape.inputs, packed, self._zeros, m, shape.all_outputs


@compiled
def _multiply(first: int, stop: int, v: np.ndarray, rows: tuple[int, int, int], inputs: int, w: np.ndarray,
              bias: np.ndarray, m: np.ndarray, stride: int) -> None:
    """``multiply_matrices`` of the products from ``first`` to ``stop``."""
    multiply_matrices(v, rows, inputs, w, bias, m, stride, first, stop)


def products(lib: Library, shape: Shape, stays: bool) -> OnednnProducts | PanelProducts:
    """The faster kind of products. ``stays``: weights are packed once for many runs."""
    ours = stays and is_fast() and shape.outputs % COLUMNS == 0 and shape.n_tiles <= MOST_TILES
    return PanelProducts(shape) if ours else OnednnProducts(lib, shape)
