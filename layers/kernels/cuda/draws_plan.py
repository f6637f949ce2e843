"""Random numbers of layers on the device: Philox, seeded by two of the host's draws, its counter in device memory.

So a captured graph draws anew at each launch, and the host has nothing to do with it after the first.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from layers import device
from layers.kernels.cuda.elementwise import mask_scale
from layers.kernels.cuda.launch import kernel, run_flat, wide
from layers.kernels.draws import Draw, Shape


class State:
    """Key and counter of one layer's numbers: uint64 (2,) on the device.

    Args:
        draw: gives the host's raw draws; two are taken at the first use, behind all fillers'.
    """

    def __init__(self, draw: Draw) -> None:
        self._draw, self._array = draw, None

    @property
    def array(self) -> Any:
        """As the kernels take it."""
        if self._array is None:
            low, high = (int(n) for n in self._draw(2))
            self._array = device.load().asarray(np.array([low | high << 32, 0], np.uint64))
        return self._array

    def advance(self) -> None:
        """Behind every call."""
        kernel("random", "next_call", np.dtype(np.float32))((1,), (1,), (self.array,))


class Dropout:
    """Masks and scales; an element is kept where its 32-bit draw is at most (1 - ratio) (2^32 - 1).

    Args:
        shape, channels_last: of the arrays; draws have no order here.
        ratio: what share is dropped, inside (0, 1).
        draw: gives the host's raw draws.
        dtype: of the arrays.
    """

    def __init__(self, shape: Shape, channels_last: bool, ratio: float, draw: Draw,
                 dtype: np.dtype | type = np.float32) -> None:
        self._state = State(draw)
        self._limit = np.uint32(min(int((1 - ratio) * (2**32 - 1)), 2**32 - 1))
        self._scale = wide(dtype).type(1 / (1 - ratio))
        self._mask = device.load().zeros(prod(shape), np.uint8)

    def forward(self, x: Any, y: Any) -> None:
        """Draw, and write y = x / (1 - ratio) where kept, else 0. y may be x."""
        run_flat("random", "dropout", x.dtype, x.size, (x, y, self._mask, self._state.array, self._limit, self._scale),
                 per_thread=4)
        self._state.advance()

    def backward(self, gy: Any, gx: Any) -> None:
        """The same elements are kept. gx may be gy."""
        mask_scale(gy, self._mask, float(self._scale), gx)


class Uniform:
    """float32 numbers in [0, 1), one an element.

    Args:
        shape, channels_last, draw, dtype: as for Dropout.
    """

    def __init__(self, shape: Shape, channels_last: bool, draw: Draw, dtype: np.dtype | type = np.float32) -> None:
        self._state = State(draw)
        self._numbers = device.load().zeros(prod(shape), np.float32)

    def next(self) -> Any:
        """As one row; good until the next call."""
        run_flat("random", "uniform", np.dtype(np.float32), self._numbers.size, (self._numbers, self._state.array),
                 per_thread=4)
        self._state.advance()
        return self._numbers
