"""What the tests of GPU kernels share: types with their tolerances, arrays, and ways there and back."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
DTYPES = (np.dtype(np.float32), np.dtype(np.float64), *HALVES)
EPS = {"float32": 1e-6, "float64": 1e-14, "float16": 1e-3, "bfloat16": 8e-3}  # a unit in the last place, or a bit more
TRANSFORMED = 100.0  # times EPS: what Winograd's and FFT's algorithms lose in float32, which cuDNN may choose
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)


def n_eps_of(kind: str, dtype: np.dtype) -> float:
    """How far a convolution's numbers may be off, as ``close`` takes it."""
    return TRANSFORMED if kind == "cudnn" and dtype == np.float32 else 4.0


def wide(dtype: np.dtype) -> np.dtype:
    """The type of parameters beside arrays of that type."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def numbers(shape: Any, dtype: np.dtype, seed: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    """Random numbers that the type holds exactly; compute with them in float64."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)


def double(a: np.ndarray) -> np.ndarray:
    """In float64."""
    return a.astype(np.float64)


def stored(logical: np.ndarray) -> np.ndarray:
    """Channels last."""
    return np.ascontiguousarray(np.moveaxis(logical, 1, -1))


def close(got: Any, expected: np.ndarray, dtype: np.dtype, n_eps: float = 4.0) -> None:
    """Equal to a few units in the last place of the largest element."""
    got = double(got.get()).reshape(np.shape(expected))
    scale = max(float(np.abs(expected).max(initial=0)), 1e-30)
    np.testing.assert_allclose(got, expected, rtol=0, atol=n_eps * EPS[dtype.name] * scale)


def shifted(cp: Any, values: np.ndarray, by: int) -> Any:
    """The values on the device, ``by`` elements behind an aligned place: kernels must not read them in packs."""
    room = cp.empty(values.size + by, values.dtype)
    room[by:] = cp.asarray(values.reshape(-1))
    return room[by:].reshape(values.shape)
