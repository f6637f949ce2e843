"""Signs of flat arrays as bits, and ReLU's gradient from them. See ``scaffe.layers.kernels.signs``."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.brain import real, stored
from scaffe.layers.kernels.cpu.elementwise import are_one
from scaffe.layers.kernels.cpu.parts import LEAST_ELEMS, in_units
from scaffe.layers.kernels.cpu.words import wide, words
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.signs import BITS, LANES, TOGETHER, expect_words


def note_signs(y: np.ndarray, signs: np.ndarray) -> None:
    """Set the bits of the elements above 0, and clear all others.

    Args:
        y: flat.
        signs: uint32, (n_words(y.size),).
    """
    expect_words(y.size, signs)
    in_units(_note, TOGETHER, y.size, y.size // LEAST_ELEMS, words(y), signs)


def relu_backward_signs(signs: np.ndarray, gy: np.ndarray, gx: np.ndarray, slope: float) -> None:
    """gx = gy where the bit is set, slope · gy elsewhere. gx may be gy.

    Args:
        signs: from ``note_signs``.
        gy, gx: flat.
        slope: below 0.
    """
    expect_elems(gy.size, gx)
    expect_words(gy.size, signs)
    source = None if are_one(gy, gx) else words(gy)
    in_units(_back, TOGETHER, gx.size, gx.size // LEAST_ELEMS, signs, source, words(gx), wide(gx.dtype).type(slope))


@compiled
def _note(start: int, stop: int, y: np.ndarray, signs: np.ndarray) -> None:
    for first in range(start, stop, TOGETHER):
        here, values = signs[first // BITS:first // BITS + LANES], y[first:first + TOGETHER]
        here[:] = 0
        for j in range(-(-values.size // LANES)):
            bit, run = np.uint32(1 << j), values[LANES * j:LANES * (j + 1)]
            for w in range(run.size):
                here[w] |= bit if real(run[w]) > 0 else np.uint32(0)


@compiled
def _back(start: int, stop: int, signs: np.ndarray, gy: np.ndarray | None, gx: np.ndarray, slope: float) -> None:
    for first in range(start, stop, TOGETHER):
        here, out = signs[first // BITS:first // BITS + LANES], gx[first:first + TOGETHER]
        for j in range(-(-out.size // LANES)):
            bit, run = np.uint32(1 << j), out[LANES * j:LANES * (j + 1)]
            grad = run if gy is None else gy[first + LANES * j:first + LANES * j + run.size]
            for w in range(run.size):
                value = real(run[w] if gy is None else grad[w])
                run[w] = stored(value if here[w] & bit else slope * value, run[w])
