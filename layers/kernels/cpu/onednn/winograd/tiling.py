"""Where Winograd's filtering is faster, and how a convolution is divided into tiles and blocks of tiles."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from scaffe.layers.kernels.cpu.arrays import workspace
from scaffe.layers.kernels.cpu.winograd.matrices import TILE
from scaffe.layers.kernels.specs import ConvSpec

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
    """Whether Winograd's filtering beats oneDNN's direct convolution, as measured with AVX-512 (docs/compute.md).

    With fewer tiles, the transformed weights, four times as many, are read for too few products. With fewer products
    for each channel, the transforms cost more than the products that they save.
    """
    return _supports(spec) and Tiling.of(spec).n_tiles >= FEWEST_TILES


def is_faster_in_training(spec: ConvSpec) -> bool:
    """Whether it also does when each pass transforms the weights.

    Batches of few images are left out, since users compare their gradients with another program's: rounding errors of
    1e-5 instead of 1e-6 flip more choices of ReLU and pooling, which shows there and averages out in training.
    """
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
