"""Random numbers of layers, drawn in Caffe's order: Dropout's masks, the choices of STOCHASTIC pooling."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scaffe.layers.base.random import Stream
from scaffe.layers.kernels.cpu.elementwise import mask_scale
from scaffe.layers.kernels.cpu.words import wide

LARGEST_DRAW = np.float32(2**32 - 1)
CHUNK = 1 << 16
Shape = tuple[int, ...]


class Dropout:
    """Dropout. An element is kept if its draw is at most (1 - ratio) (2^32 - 1), in float32, as in Caffe 1.0.

    Args:
        shape: logical; draws are taken in its (Caffe's) element order.
        channels_last: storage order of the arrays.
        ratio: probability of dropping an element, from 0 to below 1.
        draws: gives the raw draws.
        dtype: element type of the arrays.
        scales: whether kept elements are multiplied by 1 / (1 - ratio).
    """

    def __init__(self, shape: Shape, channels_last: bool, ratio: float, draws: Stream,
                 dtype: np.dtype | type = np.float32, scales: bool = True) -> None:
        self._shape, self._channels_last, self._draws = shape, channels_last, draws
        self._limit = np.float32(1 - ratio) * LARGEST_DRAW
        self._scale = wide(dtype).type(1 / (1 - ratio) if scales else 1)
        self._mask = np.ones(int(np.prod(shape)), np.bool_)

    def forward(self, x: np.ndarray, y: np.ndarray) -> None:
        """Draw a mask; write y, x scaled, where an element is kept, else 0. y may be x."""
        kept = np.empty(x.size, np.bool_)
        for at in range(0, x.size, CHUNK):  # the draws themselves take eight times an element
            kept[at:at + CHUNK] = self._draws.draw(min(CHUNK, x.size - at)).astype(np.float32) <= self._limit
        self._mask = as_stored(kept, self._shape, self._channels_last)
        mask_scale(x, self._mask, self._scale, y)

    def backward(self, gy: np.ndarray, gx: np.ndarray) -> None:
        """Write gx, gy scaled, where the last forward kept an element, else 0. gx may be gy."""
        mask_scale(gy, self._mask, self._scale, gx)


class Uniform:
    """Numbers in [0, 1), one for each element, drawn in Caffe's order.

    Args:
        shape, channels_last, draws, dtype: as for Dropout.
    """

    def __init__(self, shape: Shape, channels_last: bool, draws: Stream,
                 dtype: np.dtype | type = np.float32) -> None:
        self._draws = draws
        stored = (shape[0], *shape[2:], shape[1]) if channels_last else shape
        self._numbers = np.empty(stored, dtype)
        self._logical = np.moveaxis(self._numbers, -1, 1) if channels_last else self._numbers

    def next(self) -> np.ndarray:
        """The next numbers, flat, in storage order; the last ones are overwritten."""
        for place in _runs(self._logical.shape):
            part = self._logical[place]
            part[...] = (self._draws.draw(part.size).astype(part.dtype) / 2**32).reshape(part.shape)
        return self._numbers.reshape(-1)


def _runs(shape: Shape) -> Iterator[tuple[int | slice, ...]]:
    """Indices that divide an array into runs of at most CHUNK elements each, in C order."""
    inner = int(np.prod(shape[1:]))
    if inner <= CHUNK:
        step = CHUNK // max(inner, 1)
        yield from ((slice(at, at + step),) for at in range(0, shape[0], step))
        return
    yield from ((i, *rest) for i in range(shape[0]) for rest in _runs(shape[1:]))


def as_stored(values: np.ndarray, shape: Shape, channels_last: bool) -> np.ndarray:
    """A flat array in Caffe's order, rearranged to storage order."""
    return np.moveaxis(values.reshape(shape), 1, -1).ravel() if channels_last else values
