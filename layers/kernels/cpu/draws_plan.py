"""Random numbers of layers, drawn in Caffe's order: Dropout's masks, the choices of STOCHASTIC pooling."""

from __future__ import annotations

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
        self._shape, self._channels_last, self._draws, self._dtype = shape, channels_last, draws, dtype

    def next(self) -> np.ndarray:
        """The next numbers, flat, in storage order."""
        numbers = self._draws.draw(int(np.prod(self._shape))).astype(self._dtype) / 2**32
        return as_stored(numbers, self._shape, self._channels_last)


def as_stored(values: np.ndarray, shape: Shape, channels_last: bool) -> np.ndarray:
    """A flat array in Caffe's order, rearranged to storage order."""
    return np.moveaxis(values.reshape(shape), 1, -1).ravel() if channels_last else values
