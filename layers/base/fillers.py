"""Caffe's weight fillers. They use Caffe's random numbers, so a seed gives the same weights as Caffe, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.random import Stream

FAN_IN, FAN_OUT, AVERAGE = 0, 1, 2  # FillerParameter.VarianceNorm
BY_ELEMENT = ("constant", "uniform", "gaussian")  # each element alone: images are filled one by one, in a copy of one
CHUNK = 1 << 16  # draws turned into values at a time, so that temporaries stay in cache


def fill(array: np.ndarray, filler: Any, rng: Stream) -> None:
    """Fill an array, float32 or float64, in Caffe's logical shape, of any strides, as a FillerParameter message says,
    element by element in Caffe's order, with as many draws as Caffe. Raises LayerError for an unknown filler,
    impossible parameters, or an array without elements."""
    if filler.type not in FILLERS:
        raise LayerError(f"unknown filler {filler.type!r}; known: {', '.join(sorted(FILLERS))}")
    if array.size == 0:
        raise LayerError(f"filler {filler.type!r} wants at least one element, got shape {array.shape}")
    if filler.sparse != -1 and filler.type != "gaussian":
        raise LayerError(f"filler {filler.type!r} cannot be sparse; only 'gaussian' can")
    write = FILLERS[filler.type]
    if array.flags.c_contiguous:
        write(array, filler, rng)
        return
    by_image = filler.type in BY_ELEMENT and filler.sparse == -1 and array.ndim > 1
    for part in array if by_image else [array]:
        target = np.empty(part.shape, part.dtype)
        write(target, filler, rng)
        part[...] = target


def uniform(out: np.ndarray, low: float, high: float, rng: Stream) -> None:
    """Fill a C-contiguous float32 or float64 array with uniform numbers in [low, high], one draw each, computed in its
    type.

    The formula is boost::uniform_real's over a 32-bit engine: draw / 2^32 * (next(high) - low) + low. A value that
    rounds up to next(high) is discarded and drawn again (about one in 10^7). Raises LayerError if low > high, or high -
    low is not finite."""
    real = out.dtype.type
    with np.errstate(over="ignore", invalid="ignore"):
        low, end = real(low), np.nextafter(real(high), real(np.inf))
        width = end - low
    if not (width > 0 and np.isfinite(width)):  # no draw would be accepted
        raise LayerError(f"uniform filler wants min <= max and a finite max - min, got {low} and {high}")
    flat, scale = out.reshape(-1), real(1 / 2**32)
    done = 0
    while done < flat.size:
        values = rng.draw(min(CHUNK, flat.size - done)).astype(real)
        values *= scale
        values *= width
        values += low
        kept = values[values < end]
        flat[done : done + kept.size] = kept
        done += kept.size


def gaussian(out: np.ndarray, mean: float, std: float, rng: Stream) -> None:
    """Fill a C-contiguous array with the numbers of boost::normal_distribution<float>, bit for bit: in float32, even if
    the array is float64, as in Caffe. Raises LayerError unless std is positive."""
    if not std > 0:
        raise LayerError(f"gaussian filler wants std > 0, got {std}")
    from scaffe.layers.kernels.cpu.random_numbers import (  # numba: only where it is needed
        exponential_layers,
        fill_normal,
        normal_layers,
    )

    flat, layers = out.reshape(-1), (normal_layers(), exponential_layers())
    values, draws = np.empty(min(CHUNK, flat.size), np.float32), np.empty(0, np.uint32)
    done = 0
    while done < flat.size:
        wanted = min(CHUNK, flat.size - done)  # each number takes at least one draw, so no draw is wasted
        draws = np.concatenate([draws, rng.draw(wanted)])
        n_new, n_used = fill_normal(draws, values[:wanted], *layers)
        flat[done : done + n_new] = values[:n_new] * np.float32(std) + np.float32(mean)
        done, draws = done + n_new, draws[n_used:]


def bernoulli(n_elems: int, probability: float, rng: Stream) -> np.ndarray:
    """Booleans (n_elems,), each True with that probability, by one draw each; for probability 0 no draw is taken, as in
    boost. Raises LayerError for a probability outside 0 to 1."""
    if not 0 <= probability <= 1:
        raise LayerError(f"a probability lies in 0 to 1, got {probability}")
    if probability == 0:
        return np.zeros(n_elems, bool)
    return rng.draw(n_elems).astype(np.float32) <= np.float32(probability) * np.float32(2**32 - 1)


def fan(shape: tuple[int, ...], variance_norm: int) -> float:
    """Caffe's n for 'xavier' and 'msra', of a weight shape: fan-in, fan-out or their mean (``variance_norm``)."""
    count = prod(shape)
    fan_in = count // shape[0] if shape else count
    fan_out = count // shape[1] if len(shape) > 1 else count
    return {FAN_IN: fan_in, FAN_OUT: fan_out, AVERAGE: (fan_in + fan_out) / 2}[variance_norm]


def _fill_gaussian(out: np.ndarray, filler: Any, rng: Stream) -> None:
    gaussian(out, filler.mean, filler.std, rng)
    if filler.sparse < -1:
        raise LayerError(f"gaussian filler wants sparse >= -1, got {filler.sparse}")
    if filler.sparse >= 0:  # mean number of inputs that an output keeps
        out *= bernoulli(out.size, float(np.float32(filler.sparse) / np.float32(out.shape[0])), rng).reshape(out.shape)


def _fill_positive_unitball(out: np.ndarray, filler: Any, rng: Stream) -> None:
    uniform(out, 0, 1, rng)
    rows = out.reshape(out.shape[0] if out.ndim else 1, -1)
    rows /= np.add.accumulate(rows, axis=1)[:, -1:]  # summed in order: Caffe's bits


def _fill_xavier(out: np.ndarray, filler: Any, rng: Stream) -> None:
    """Glorot and Bengio 2010, eq. 16, with Caffe's n."""
    real = out.dtype.type
    scale = np.sqrt(real(3) / real(fan(out.shape, filler.variance_norm)))
    uniform(out, -scale, scale, rng)


def _fill_msra(out: np.ndarray, filler: Any, rng: Stream) -> None:
    """He, Zhang, Ren and Sun 2015, section 2.2."""
    real = out.dtype.type
    gaussian(out, 0, np.sqrt(real(2) / real(fan(out.shape, filler.variance_norm))), rng)


def _fill_bilinear(out: np.ndarray, filler: Any, rng: Stream) -> None:
    """Weights of an upsampling deconvolution: a tent over each square kernel."""
    if out.ndim != 4 or out.shape[2] != out.shape[3]:
        raise LayerError(f"bilinear filler wants a 4-axis shape with square kernels, got {out.shape}")
    width = out.shape[3]
    factor = ceil(width / 2)
    centre = out.dtype.type((width - 1) / (2 * factor))
    tent = 1 - np.abs(np.arange(width, dtype=out.dtype) / out.dtype.type(factor) - centre)
    out[...] = tent[:, None] * tent


FILLERS: dict[str, Callable[[np.ndarray, Any, Stream], None]] = {
    "constant": lambda out, filler, rng: out.fill(filler.value),
    "uniform": lambda out, filler, rng: uniform(out, filler.min, filler.max, rng),
    "gaussian": _fill_gaussian,
    "positive_unitball": _fill_positive_unitball,
    "xavier": _fill_xavier,
    "msra": _fill_msra,
    "bilinear": _fill_bilinear,
}
