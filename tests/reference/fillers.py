"""Caffe's draws from NumPy's own copy of the Mersenne Twister, one number at a time."""

from __future__ import annotations

import numpy as np


def draws(seed: int, n_elems: int) -> np.ndarray:
    """The first raw 32-bit draws of MT19937."""
    return np.frombuffer(np.random.RandomState(seed).bytes(4 * n_elems), "<u4")


def uniform(seed: int, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """boost::uniform_real<float> over [low, next(high)), in float32 arithmetic; too-large values are drawn again."""
    n_elems = int(np.prod(shape, dtype=int))
    start, end = np.float32(low), np.nextafter(np.float32(high), np.float32(np.inf))
    values: list[np.float32] = []
    for raw in draws(seed, n_elems + 100):
        value = np.float32(raw) / np.float32(2**32) * (end - start) + start
        if value < end and len(values) < n_elems:
            values.append(value)
    return np.array(values, np.float32).reshape(shape)
