"""Plans that draw random numbers in Caffe's order: Dropout's masks, the choices of STOCHASTIC pooling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from scaffe.layers.base.random import Stream
from scaffe.layers.kernels.cpu.arrays import wide
from scaffe.layers.kernels.cpu.elementwise import mask_scale

LARGEST_DRAW = np.float32(2**32 - 1)
CHUNK = 1 << 16
Shape = tuple[int, ...]


class Dropout:
    """Dropout with the masks of Caffe: draws are taken in Caffe's element order. Arguments as for
    ``Backend.dropout``."""

    def __init__(self, shape: Shape, channels_last: bool, ratio: float, draws: Stream,
                 dtype: np.dtype | type = np.float32, scales: bool = True) -> None:
        self._draws = draws
        self._limit = np.float32(1 - ratio) * LARGEST_DRAW
        self._scale = wide(dtype).type(1 / (1 - ratio) if scales else 1)
        self._mask, self._logical = _stored(shape, channels_last, np.bool_)
        self._mask[...] = True

    def forward(self, x: np.ndarray, y: np.ndarray) -> None:
        """Draw a mask; write y, x scaled, where an element is kept, else 0. y may be x."""
        for place in _runs(self._logical.shape):  # a piece at a time: a draw takes 8 bytes
            part = self._logical[place]
            part[...] = (self._draws.draw(part.size).astype(np.float32) <= self._limit).reshape(part.shape)
        mask_scale(x, self._mask, self._scale, y)

    def backward(self, gy: np.ndarray, gx: np.ndarray) -> None:
        """Write gx, gy scaled, where the last forward kept an element, else 0. gx may be gy."""
        mask_scale(gy, self._mask, self._scale, gx)


class Uniform:
    """Numbers in [0, 1), one for each element, drawn in Caffe's order; arguments as for Dropout."""

    def __init__(self, shape: Shape, channels_last: bool, draws: Stream,
                 dtype: np.dtype | type = np.float32) -> None:
        self._draws = draws
        self._numbers, self._logical = _stored(shape, channels_last, dtype)

    def next(self) -> np.ndarray:
        """The next numbers, flat, in storage order; the last ones are overwritten."""
        for place in _runs(self._logical.shape):
            part = self._logical[place]
            part[...] = (self._draws.draw(part.size).astype(part.dtype) / 2**32).reshape(part.shape)
        return self._numbers


def _runs(shape: Shape) -> Iterator[tuple[Any, ...]]:
    """Indices that divide an array into runs of at most CHUNK elements each, in C order."""
    inner = int(np.prod(shape[1:]))
    if not shape:
        yield (...,)
        return
    if inner <= CHUNK:
        step = CHUNK // max(inner, 1)
        yield from ((slice(at, at + step),) for at in range(0, shape[0], step))
        return
    yield from ((i, *rest) for i in range(shape[0]) for rest in _runs(shape[1:]))


def _stored(shape: Shape, channels_last: bool, dtype: np.dtype | type) -> tuple[np.ndarray, np.ndarray]:
    """A new flat array in storage order, and a view of it in Caffe's order. The first one is no view, since memory
    accounting counts arrays that own their memory."""
    flat = np.empty(int(np.prod(shape)), dtype)
    stored = flat.reshape((shape[0], *shape[2:], shape[1]) if channels_last else shape)
    return flat, np.moveaxis(stored, -1, 1) if channels_last else stored
