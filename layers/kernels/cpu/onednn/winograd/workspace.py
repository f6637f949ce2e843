"""The working memory of Winograd's passes, as arrays."""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.layers.kernels.cpu.onednn.workspace import workspace


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
