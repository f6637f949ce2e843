"""Where Winograd's filtering is faster, how a convolution is divided into tiles and blocks of tiles, and the matrix
products of transformed images and transformed weights, one for each position in a tile."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.register_tiles import COLUMNS
from scaffe.layers.kernels.cpu.arrays import workspace, zeros
from scaffe.layers.kernels.cpu.conv.panels import in_panels, is_fast, multiply_matrices
from scaffe.layers.kernels.cpu.onednn.library import Library
from scaffe.layers.kernels.cpu.onednn.primitive import QUERY_WEIGHTS, Arg, Primitive, Reorder, any_layout, strided
from scaffe.layers.kernels.cpu.threads.parts import in_units
from scaffe.layers.kernels.cpu.threads.prepared_calls import NativeCalls, prepare_units
from scaffe.layers.kernels.cpu.winograd import TILE
from scaffe.layers.kernels.specs import ConvSpec, plain_strides

FEWEST_PRODUCTS = {3: 24, 5: 16}
"""By taps along an axis: least n_in n_out / (n_in + n_out), the products for each transformed channel.

LeNet's second convolution (14) would be faster too, but there 1, 2 and 4 ranks must give the same losses, which smaller
rounding errors keep alike for longer.
"""
FEWEST_PRODUCTS_OF_GRADIENTS = 20
FEWEST_TILES = 16
FEWEST_TRAINED_TILES, FEWEST_TRAINED_IMAGES = 64, 4
BLOCK_BYTES = (1 << 20, 1 << 23)
"""Least and most bytes of the transformed bottom in a block; in between, as many as the weights have."""


@dataclass(frozen=True)
class Tiling:
    """The tiles of a convolution's outputs: ``rows`` of tiles in each of ``n_images``, and tiles in a row
    (``columns``), for 3 or 5 weights along an axis (``taps``)."""

    n_images: int
    rows: int
    columns: int
    taps: int

    @classmethod
    def of(cls, spec: ConvSpec) -> Tiling:
        """The tiling of a geometry of two axes."""
        height, width = spec.out_spatial
        return cls(spec.in_shape[0], -(-height // TILE), -(-width // TILE), spec.kernel[0])

    @property
    def n_products(self) -> int:
        """Products for a tile, of each channel of bottom and top."""
        products: int = (TILE + self.taps - 1) ** 2
        return products

    @property
    def n_rows(self) -> int:
        """Rows of tiles in all images."""
        return self.n_images * self.rows

    @property
    def n_tiles(self) -> int:
        """Tiles in all images."""
        return self.n_rows * self.columns

    def block_rows(self, n_bytes: int, n_channels: int) -> int:
        """Rows of tiles in a block, as many in all but the last, whose transformed bottom and top, of at most
        n_channels, are at most that large."""
        n_blocks = -(-self.n_rows // max(n_bytes // (4 * self.n_products * self.columns * n_channels), 1))
        return -(-self.n_rows // n_blocks)


def is_faster(spec: ConvSpec) -> bool:
    """Whether Winograd's filtering beats oneDNN's direct convolution, as measured (docs/design/cpu_kernels.md). With
    fewer tiles, the transformed weights, four times as many, are read for too few products; with fewer products for
    each channel, the transforms cost more than the products that they save."""
    return _supports(spec) and Tiling.of(spec).n_tiles >= FEWEST_TILES


def is_faster_in_training(spec: ConvSpec) -> bool:
    """Whether it also does when each pass transforms the weights. Batches of few images are left out, since users
    compare their gradients with another program's: rounding errors of 1e-5 instead of 1e-6 flip more choices of ReLU
    and pooling, which shows there and averages out in training."""
    return (_supports(spec) and Tiling.of(spec).n_tiles >= FEWEST_TRAINED_TILES
            and spec.in_shape[0] >= FEWEST_TRAINED_IMAGES)


def has_faster_gradient(spec: ConvSpec) -> bool:
    """Whether the weights' gradient is faster too; below this limit the gain is a few per cent at most."""
    return _products(spec) >= FEWEST_PRODUCTS_OF_GRADIENTS


def _products(spec: ConvSpec) -> float:
    n_in, n_out = spec.in_shape[1] // spec.group, spec.n_output // spec.group
    return n_in * n_out / (n_in + n_out)


def _supports(spec: ConvSpec) -> bool:
    taps = spec.kernel[0]
    if spec.direct or taps not in FEWEST_PRODUCTS or max(spec.pad) > taps - 1:
        return False
    return ((spec.kernel, spec.stride, spec.dilation) == ((taps, taps), (1, 1), (1, 1))
            and _products(spec) >= FEWEST_PRODUCTS[taps])


def block_bytes(spec: ConvSpec) -> int:
    """The largest size in bytes of a block's transformed bottom or top in the forward pass."""
    return min(max(4 * Tiling.of(spec).n_products * prod(spec.weight_shape[:2]), BLOCK_BYTES[0]), BLOCK_BYTES[1])


def array(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A named float32 working array of the thread, valid until it asks for that name with a larger shape."""
    return _flat(name, shape)[: prod(shape)].reshape(shape)


def from_channel(name: str, shape: tuple[int, ...], channel: int) -> np.ndarray:
    """The array flat, from a channel (its last axis) on, as a strided product reads a group of channels."""
    return _flat(name, shape)[channel:]


def _flat(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The array flat, with one row more than its shape: oneDNN counts the gap after a group's last channel too."""
    flat: np.ndarray = workspace(name, _n_bytes(shape)).view(np.float32)
    return flat


def bytes_of(*shapes: tuple[int, ...]) -> dict[str, int]:
    """Bytes of the working arrays of these shapes for the bottom, the top and the weights, by their names."""
    return dict(zip(("bottom", "top", "weights"), map(_n_bytes, shapes), strict=True))


def _n_bytes(shape: tuple[int, ...]) -> int:
    return 4 * (prod(shape) + shape[-1])


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
        return self.n_products, self.inputs, self.outputs

    @property
    def bottom(self) -> tuple[int, int, int]:
        return self.n_products, self.n_tiles, self.all_inputs

    @property
    def top(self) -> tuple[int, int, int]:
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
        self._product = Primitive(lib, desc, [(Arg.SRC, v), (Arg.WEIGHTS, w), (Arg.DST, m)])
        self._reorder = Reorder(lib, plain, w)
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
