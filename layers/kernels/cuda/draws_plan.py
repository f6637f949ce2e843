"""Random numbers on the device: Philox, its key taken from the host's stream, its counter in device memory.

So each launch of a captured graph draws new numbers without the host.
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
    """The generator of a net's layers: key and counter, uint64 (2,), on the device. ``is_used``: a layer draws from
    here.

    Two draws of the host's stream make the key, taken at the first use, after those of all fillers, and again after the
    stream was restarted."""

    def __init__(self, rng: Stream) -> None:
        self._rng, self._array, self.is_used = rng, None, False
        self._n_restarts = rng.n_restarts

    @property
    def array(self) -> Any:
        """Key and counter, as the kernels take them."""
        if self._array is None:
            self._array = device.load().asarray(self._anew())
        self.catch_up()
        return self._array

    def catch_up(self) -> None:
        """Take a new key if the stream was restarted. Called before a graph is launched, which cannot check."""
        if self._array is not None and self._n_restarts != self._rng.n_restarts:
            self._array[...] = device.load().asarray(self._anew())  # the same memory, which graphs know

    def advance(self) -> None:
        """Advance the counter; called after every kernel that draws."""
        kernel("random", "next_call", np.dtype(np.float32))((1,), (1,), (self.array,))

    def to_bytes(self) -> bytes:
        """The state of the host's stream, then key and counter if there are any; waits for the device."""
        mine = b"" if self._array is None else device.load().asnumpy(self.array).astype("<u8").tobytes()
        return self._rng.to_bytes() + mine

    def from_bytes(self, place: bytes) -> bool:
        """Continue from a state saved here or by ``Stream``. Returns whether the same numbers follow as then."""
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
    """Dropout; arguments as for ``Backend.dropout``. Draws are in storage order; an element is kept if its 32-bit draw
    is at most (1 - ratio) (2^32 - 1)."""

    def __init__(self, shape: Shape, channels_last: bool, ratio: float, draws: Draws,
                 dtype: np.dtype | type = np.float32, scales: bool = True) -> None:
        self._draws, draws.is_used = draws, True
        self._limit = np.uint32(min(int((1 - ratio) * (2**32 - 1)), 2**32 - 1))
        self._scale = wide(dtype).type(1 / (1 - ratio) if scales else 1)
        self._mask = device.load().zeros(prod(shape), np.uint8)

    def forward(self, x: Any, y: Any) -> None:
        """Draw a mask; write y, x scaled, where an element is kept, else 0. y may be x."""
        expect_elems(self._mask.size, x, y)
        run_flat("random", "dropout", x.dtype, x.size, (x, y, self._mask, self._draws.array, self._limit, self._scale),
                 per_thread=4)
        self._draws.advance()

    def backward(self, gy: Any, gx: Any) -> None:
        """Write gx, gy scaled, where the last forward kept an element, else 0. gx may be gy."""
        mask_scale(gy, self._mask, float(self._scale), gx)


class Uniform:
    """float32 numbers in [0, 1), one for each element; arguments as for Dropout."""

    def __init__(self, shape: Shape, channels_last: bool, draws: Draws,
                 dtype: np.dtype | type = np.float32) -> None:
        self._draws, draws.is_used = draws, True
        self._numbers = device.load().zeros(prod(shape), np.float32)

    def next(self) -> Any:
        """The next numbers, flat; valid until the next call."""
        run_flat("random", "uniform", np.dtype(np.float32), self._numbers.size, (self._numbers, self._draws.array),
                 per_thread=4)
        self._draws.advance()
        return self._numbers
