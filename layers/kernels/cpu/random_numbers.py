"""Random numbers: Dropout's masks and uniform numbers in Caffe's order, and normal ones by the ziggurat method in
float32, the same as boost::normal_distribution<float> (Boost 1.56+).

Marsaglia and Tsang, "The Ziggurat Method for Generating Random Variables", J. Stat. Software 5(8), 2000: the half curve
is covered by 128 layers of equal area. One 32-bit draw gives the layer (7 bits), the sign (1) and x within the layer
(24). If x lies inside the next layer too, it is accepted at once (98.6 %); else a second draw decides. The tail comes
from pairs of exponential numbers, drawn by a ziggurat of 256 layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from functools import cache
from math import exp, nan
from typing import Any, NamedTuple

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels.cpu.arrays import wide
from scaffe.layers.kernels.cpu.elementwise import mask_scale

NORMAL_EDGE = Decimal("3.4426198558966521214")  # where the tail begins, of 128 layers
NORMAL_WIDTH = Decimal("3.7130862467403632609")  # of the bottom layer, were it a rectangle of the others' area
EXPONENTIAL_EDGE = Decimal("7.69711747013104971404462804811")  # of 256 layers; its width is this plus 1
REAL = np.float32
UNIT_24, UNIT_32 = REAL(2.0**-24), REAL(2.0**-32)
ONE, TWO, ZERO = REAL(1), REAL(2), REAL(0)
Curve = Callable[[Decimal], Decimal]
SHORT = -1  # returned in place of a position when the draws run out


class Layers(NamedTuple):
    """A ziggurat: right edges x and heights y of its layers from the bottom up, x in float64, and their differences."""

    x: np.ndarray
    y: np.ndarray
    x_wide: np.ndarray
    narrowing: np.ndarray
    rise: np.ndarray


@cache
def normal_layers() -> Layers:
    """128 layers under exp(-x^2 / 2)."""
    return _layers(NORMAL_EDGE, NORMAL_WIDTH, 128, lambda x: (-x * x / 2).exp(), lambda y: (-2 * y.ln()).sqrt())


@cache
def exponential_layers() -> Layers:
    """256 layers under exp(-x)."""
    return _layers(EXPONENTIAL_EDGE, EXPONENTIAL_EDGE + 1, 256, lambda x: (-x).exp(), lambda y: -y.ln())


def _layers(edge: Decimal, width: Decimal, n_layers: int, curve: Curve, inverse: Curve) -> Layers:
    with localcontext() as context:
        context.prec = 40
        area = width * curve(edge)
        x, y = [width, edge], [Decimal(0), curve(edge)]
        while len(x) < n_layers:
            y.append(y[-1] + area / x[-1])
            x.append(inverse(y[-1]))
    x_wide = np.array([*map(float, x), 0.0])
    y_wide = np.array([*map(float, y), 1.0])
    return Layers(x_wide.astype(REAL), y_wide.astype(REAL), x_wide, (x_wide[:-1] - x_wide[1:]).astype(REAL),
                  (y_wide[1:] - y_wide[:-1]).astype(REAL))


@compiled
def _unit(draws: np.ndarray, at: int) -> tuple[np.float32, int]:
    """A number of [0, 1) and the next position; a draw that rounds to 1 is discarded."""
    while at < draws.size:
        value = REAL(draws[at]) * UNIT_32
        at += 1
        if value < ONE:
            return value, at
    return ZERO, SHORT


@compiled
def _exponential(draws: np.ndarray, at: int, layers: Layers) -> tuple[np.float32, int]:
    """An exponential number and the next position."""
    shift = ZERO
    while at < draws.size:
        i = draws[at] & np.uint32(255)
        x: np.float32 = REAL(draws[at] >> np.uint32(8)) * UNIT_24 * layers.x[i]
        at += 1
        if x < layers.x[i + 1]:
            return shift + x, at
        if i == 0:
            shift += layers.x[1]  # the tail of an exponential is an exponential
            continue
        part, at = _unit(draws, at)
        if at == SHORT:
            break
        y = layers.y[i] + part * layers.rise[i]
        above_chord = layers.narrowing[i] * part - (layers.x[i] - x)
        above_tangent = y - (layers.y[i + 1] + (layers.x[i + 1] - x) * layers.y[i + 1])
        if above_chord < ZERO and (above_tangent < ZERO or y < REAL(exp(-x))):
            return shift + x, at
    return ZERO, SHORT


@compiled
def _tail(draws: np.ndarray, at: int, edge: np.float32, exponential: Layers) -> tuple[np.float32, int]:
    """A number beyond the edge and the next position."""
    while True:
        x, at = _exponential(draws, at, exponential)
        if at == SHORT:
            return ZERO, SHORT
        y, at = _exponential(draws, at, exponential)
        if at == SHORT:
            return ZERO, SHORT
        x /= edge
        if TWO * y > x * x:
            return x + edge, at


@compiled
def _second_look(draws: np.ndarray, at: int, i: int, x: np.float32, normal: Layers,
                 exponential: Layers) -> tuple[np.float32, int]:
    """Decide on x outside of the layer above i: the number, NaN if x is rejected, and the next position."""
    if i == 0:
        far: tuple[np.float32, int] = _tail(draws, at, normal.x[1], exponential)
        return far
    part, at = _unit(draws, at)
    y = normal.y[i] + part * normal.rise[i]
    above_chord = normal.narrowing[i] * part - (normal.x[i] - x)
    above_tangent = y - (normal.y[i] + (normal.x[i] - x) * normal.y[i] * normal.x[i])
    upper, lower = (above_chord, above_tangent) if normal.x_wide[i] >= 1 else (above_tangent, above_chord)
    if upper < ZERO and (lower < ZERO or y < REAL(exp(-(x * x / TWO)))):
        return x, at
    return REAL(nan), at


@compiled
def fill_normal(draws: np.ndarray, out: np.ndarray, normal: Layers, exponential: Layers) -> tuple[int, int]:
    """Write standard normal numbers into out, float32, from raw draws, uint32, by the two ziggurats, until ``out`` is
    full or the draws run out. Returns the numbers written, and the draws used for them."""
    at = n_done = 0
    while n_done < out.size and at < draws.size:
        draw = draws[at]
        i = (draw & np.uint32(255)) >> np.uint32(1)
        value = REAL(draw >> np.uint32(8)) * UNIT_24 * normal.x[i]
        after = at + 1
        if value >= normal.x_wide[i + 1]:
            value, after = _second_look(draws, after, i, value, normal, exponential)
            if after == SHORT:
                break
        at = after
        if value == value:
            out[n_done] = value if draw & np.uint32(1) else -value
            n_done += 1
    return n_done, at


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
