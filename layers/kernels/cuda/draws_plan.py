"""Random numbers on the device: Philox, seeded by two of the host's draws, its counter in device memory.

So a captured graph draws anew at each launch, and the host has nothing to do with it but for snapshots.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import device
from scaffe.layers.kernels.cpu.draws_plan import Shape
from scaffe.layers.kernels.cuda.elementwise import mask_scale
from scaffe.layers.kernels.cuda.launch import kernel, run_flat, wide
from scaffe.layers.kernels.extents import expect_elems


class Draws:
    """Key and counter of the numbers of a net's layers: uint64 (2,) on the device.

    Args:
        rng: the host's stream; two of its draws are the key, taken at the first use, behind all fillers', and at the
            first one after the stream was restarted.

    Attributes:
        is_used: whether a layer draws from here.
    """

    def __init__(self, rng: Stream) -> None:
        self._rng, self._array, self.is_used = rng, None, False
        self._n_restarts = rng.n_restarts

    @property
    def array(self) -> Any:
        """As the kernels take it."""
        if self._array is None:
            self._array = device.load().asarray(self._anew())
        self.catch_up()
        return self._array

    def catch_up(self) -> None:
        """Take a new key if there was one and the stream has been restarted; ahead of graphs, which cannot look."""
        if self._array is not None and self._n_restarts != self._rng.n_restarts:
            self._array[...] = device.load().asarray(self._anew())  # the same memory, which graphs know

    def advance(self) -> None:
        """Behind every call."""
        kernel("random", "next_call", np.dtype(np.float32))((1,), (1,), (self.array,))

    def to_bytes(self) -> bytes:
        """The host's place, behind it key and counter if there are any; waits for the device."""
        mine = b"" if self._array is None else device.load().asnumpy(self.array).astype("<u8").tobytes()
        return self._rng.to_bytes() + mine

    def from_bytes(self, place: bytes) -> bool:
        """Go on from a place that ``to_bytes`` gave, here or on the host. Returns whether the numbers are the same."""
        self._rng.from_bytes(place)
        self._n_restarts = self._rng.n_restarts
        saved = np.frombuffer(place[Stream.N_BYTES :], "<u8").astype(np.uint64)
        if saved.size and self.is_used and self._array is None:
            self._array = device.load().asarray(saved)
        elif self._array is not None:
            self._array[...] = device.load().asarray(saved if saved.size else self._anew())
        return bool(saved.size) or not self.is_used

    def _anew(self) -> np.ndarray:
        self._n_restarts = self._rng.n_restarts
        low, high = (int(n) for n in self._rng.draw(2))
        return np.array([low | high << 32, 0], np.uint64)


class Dropout:
    """Masks and scales; an element is kept where its 32-bit draw is at most (1 - ratio) (2^32 - 1).

    Args:
        shape, channels_last: of the arrays; draws have no order here.
        ratio: what share is dropped, inside (0, 1).
        draws: the net's.
        dtype: of the arrays.
    """

    def __init__(self, shape: Shape, channels_last: bool, ratio: float, draws: Draws,
                 dtype: np.dtype | type = np.float32) -> None:
        self._draws, draws.is_used = draws, True
        self._limit = np.uint32(min(int((1 - ratio) * (2**32 - 1)), 2**32 - 1))
        self._scale = wide(dtype).type(1 / (1 - ratio))
        self._mask = device.load().zeros(prod(shape), np.uint8)

    def forward(self, x: Any, y: Any) -> None:
        """Draw, and write y = x / (1 - ratio) where kept, else 0. y may be x."""
        expect_elems(self._mask.size, x, y)
        run_flat("random", "dropout", x.dtype, x.size, (x, y, self._mask, self._draws.array, self._limit, self._scale),
                 per_thread=4)
        self._draws.advance()

    def backward(self, gy: Any, gx: Any) -> None:
        """The same elements are kept. gx may be gy."""
        mask_scale(gy, self._mask, float(self._scale), gx)


class Uniform:
    """float32 numbers in [0, 1), one an element.

    Args:
        shape, channels_last, draws, dtype: as for Dropout.
    """

    def __init__(self, shape: Shape, channels_last: bool, draws: Draws,
                 dtype: np.dtype | type = np.float32) -> None:
        self._draws, draws.is_used = draws, True
        self._numbers = device.load().zeros(prod(shape), np.float32)

    def next(self) -> Any:
        """As one row; good until the next call."""
        run_flat("random", "uniform", np.dtype(np.float32), self._numbers.size, (self._numbers, self._draws.array),
                 per_thread=4)
        self._draws.advance()
        return self._numbers
