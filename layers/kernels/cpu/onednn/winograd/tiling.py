"""Where Winograd's filtering pays, and how a convolution is cut into tiles and strips."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from scaffe.layers.kernels.cpu.arrays import workspace
from scaffe.layers.kernels.cpu.winograd.formulas import TILE
from scaffe.layers.kernels.specs import ConvSpec

FEWEST_PRODUCTS = {3: 24, 5: 16}
"""By taps along an axis: n_in n_out / (n_in + n_out), the products for each channel that is transformed.

LeNet's second convolution, 14, would be faster, too, but is where 1, 2 and 4 ranks are held to the same losses: what is
rounded less comes out alike for longer.
"""
FEWEST_PRODUCTS_OF_GRADIENTS = 20
FEWEST_TILES = 16
FEWEST_TRAINED_TILES, FEWEST_TRAINED_IMAGES = 64, 4
STRIP_BYTES = (1 << 20, 1 << 23)
"""Least and most bytes of the transformed bottom at a time: in between, as many as the weights have."""


@dataclass(frozen=True)
class Tiling:
    """The tiles of a convolution's outputs.

    Attributes:
        n_images: images.
        rows, columns: rows of tiles in an image, and tiles in a row.
        taps: weights along an axis, 3 or 5.
    """

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

    def strip(self, n_bytes: int, n_channels: int) -> int:
        """Rows of tiles in a strip, all strips but the last alike.

        Args:
            n_bytes: how much of the transformed bottom or top a strip may be.
            n_channels: the more of the two's channels.
        """
        n_strips = -(-self.n_rows // max(n_bytes // (4 * self.n_products * self.columns * n_channels), 1))
        return -(-self.n_rows // n_strips)


def is_faster(spec: ConvSpec) -> bool:
    """Whether it beats oneDNN's direct convolution, as measured with AVX-512 (docs/compute.md).

    With fewer tiles the weights, of which there are four times as many, are read for too few products; with fewer
    products for each channel of bottom and top the transforms cost more than the products that they save.
    """
    return _suits(spec) and Tiling.of(spec).n_tiles >= FEWEST_TILES


def is_faster_in_training(spec: ConvSpec) -> bool:
    """Whether it does so though each pass transforms the weights.

    Batches of few images are where people compare gradients with another program's. Rounding of 1e-5 instead of 1e-6
    makes more of ReLU's and pooling's choices fall the other way, which shows there and averages out in training.
    """
    return (_suits(spec) and Tiling.of(spec).n_tiles >= FEWEST_TRAINED_TILES
            and spec.in_shape[0] >= FEWEST_TRAINED_IMAGES)


def has_faster_gradient(spec: ConvSpec) -> bool:
    """Whether the gradient of its weights is faster, too: with fewer products by a few per cent at most."""
    return _products(spec) >= FEWEST_PRODUCTS_OF_GRADIENTS


def _products(spec: ConvSpec) -> float:
    n_in, n_out = spec.in_shape[1] // spec.group, spec.n_output // spec.group
    return n_in * n_out / (n_in + n_out)


def _suits(spec: ConvSpec) -> bool:
    taps = spec.kernel[0]
    if spec.direct or taps not in FEWEST_PRODUCTS or max(spec.pad) > taps - 1:
        return False
    return ((spec.kernel, spec.stride, spec.dilation) == ((taps, taps), (1, 1), (1, 1))
            and _products(spec) >= FEWEST_PRODUCTS[taps])


def strip_bytes(spec: ConvSpec) -> int:
    """How many bytes of the transformed bottom or top to hold at a time in the forward pass."""
    return min(max(4 * Tiling.of(spec).n_products * prod(spec.weight_shape[:2]), STRIP_BYTES[0]), STRIP_BYTES[1])


def back(spec: ConvSpec) -> ConvSpec:
    """The convolution with turned filters that carries the top's gradient to the bottom."""
    n, n_in = spec.in_shape[:2]
    return replace(spec, in_shape=(n, spec.n_output, *spec.out_spatial), n_output=n_in,
                   pad=tuple(spec.kernel[0] - 1 - pad for pad in spec.pad))


def array(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of float32 under a name, valid until the thread asks for that name and a larger shape."""
    return _flat(name, shape)[: prod(shape)].reshape(shape)


def dense(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """As ``array``, of what is never read as a group of channels: it takes no more than its elements."""
    flat: np.ndarray = workspace(name, 4 * prod(shape)).view(np.float32)
    return flat.reshape(shape)


def from_channel(name: str, shape: tuple[int, ...], channel: int) -> np.ndarray:
    """That array flat, from a channel (its last axis) on: what a product with strides reads of a group of channels."""
    return _flat(name, shape)[channel:]


def _flat(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """With a row more than the shape has: oneDNN counts the channels between a group's last and its next first."""
    flat: np.ndarray = workspace(name, n_bytes(shape)).view(np.float32)
    return flat


def n_bytes(shape: tuple[int, ...]) -> int:
    """Of the working memory for an array."""
    return 4 * (prod(shape) + shape[-1])
