"""Elementwise kernels on flat arrays of the device, and random numbers: Philox, its key taken from the host's stream,
its counter in device memory, so that each launch of a captured graph draws new numbers without the host."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import device
from scaffe.layers.kernels.cpu.random_numbers import Shape
from scaffe.layers.kernels.cuda.launch import element, kernel, run_flat, wide
from scaffe.layers.kernels.extents import BITS, expect_elems, expect_words

MOST_TOGETHER = 4  # arrays that one pass adds up


def relu_forward(x: Any, y: Any, slope: float) -> None:
    """y = x where x > 0, slope · x elsewhere. y may be x."""
    expect_elems(x.size, y)
    run_flat("elementwise", "relu_forward", x.dtype, x.size, (x, y, wide(x.dtype).type(slope)))


def relu_backward(y: Any, gy: Any, gx: Any, slope: float) -> None:
    """gx = gy where y > 0, slope · gy elsewhere. gx may be gy; y is the layer's input or output (equal signs)."""
    expect_elems(gy.size, y, gx)
    run_flat("elementwise", "relu_backward", gy.dtype, gy.size, (y, gy, gx, wide(gy.dtype).type(slope)))


def save_sign_mask(y: Any, mask: Any) -> None:
    """Set the bits of the elements above 0, and clear all others; see ``scaffe.layers.kernels.extents``."""
    expect_words(y.size, mask)
    run_flat("elementwise", "save_sign_mask", y.dtype, y.size, (y, mask), per_thread=BITS)


def relu_backward_mask(mask: Any, gy: Any, gx: Any, slope: float) -> None:
    """gx = gy where the bit is set, slope · gy elsewhere. gx may be gy."""
    expect_elems(gy.size, gx)
    expect_words(gy.size, mask)
    run_flat("elementwise", "relu_backward_mask", gy.dtype, gy.size, (mask, gy, gx, wide(gy.dtype).type(slope)),
             per_thread=BITS)


def add_relu(a: Any, b: Any, y: Any, slope: float) -> None:
    """y = a + b where that is above 0, slope · (a + b) elsewhere. y may be a."""
    expect_elems(y.size, a, b)
    run_flat("elementwise", "add_relu", y.dtype, y.size, (a, b, y, wide(y.dtype).type(slope)))


def add_up(xs: Sequence[Any], y: Any, signs: Any = None) -> None:
    """y = ((x0 + x1) + x2) + ... for two or more flat arrays, up to four a pass; 0 where ``signs``, if given, are not
    above 0. y may be x0."""
    expect_elems(y.size, *xs, signs)
    together, rest = [*xs[:MOST_TOGETHER]], xs[MOST_TOGETHER:]
    together += [None] * (MOST_TOGETHER - len(together))
    run_flat("elementwise", "add_up", y.dtype, y.size, (*together, None if rest else signs, y))
    if rest:
        add_up([y, *rest], y, signs)


def mask_scale(x: Any, mask: Any, scale: float, y: Any) -> None:
    """y = x · scale where mask is true, 0 elsewhere. y may be x."""
    expect_elems(x.size, mask, y)
    run_flat("elementwise", "mask_scale", x.dtype, x.size, (x, mask, y, wide(x.dtype).type(scale)))


def add_scaled(x: Any, y: Any, scale: float = 1.0, keep: float = 1.0) -> None:
    """y = scale · x + keep · y. If keep is 0, the old y is not read."""
    real = wide(x.dtype).type
    expect_elems(x.size, y)
    run_flat("elementwise", "add_scaled", x.dtype, x.size, (x, y, real(scale), real(keep)))


def convert(source: Any, target: Any) -> None:
    """Copy a flat array to one of another type, rounding to nearest."""
    if element(source.dtype) == element(target.dtype):
        target[...] = source
        return
    expect_elems(source.size, target)
    run_flat("conversion", "convert", target.dtype, source.size, (source, target), other=np.dtype(source.dtype))


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
