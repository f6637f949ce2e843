"""Power, exponential and logarithm of each element (Caffe 1.0's formulas).

Notation: x is the bottom, y the top; gx and gy are the gradients of the loss with respect to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, log

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.bases import Elementwise
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types

NATURAL = -1.0  # base -1 stands for e


@layer_types.register("Power")
class Power(Elementwise):
    """y = (shift + scale x) ^ power."""

    keeps_input = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.power_param
        self.power, self.scale, self.shift = (self.context.dtype.type(v) for v in (p.power, p.scale, p.shift))
        self.keeps_input = self.power not in (0, 1) and self.scale != 0

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        """Write y; if power or scale is 0 it is a constant, even where x is NaN."""
        if self.power == 0 or self.scale == 0:
            y[...] = 1 if self.power == 0 else self.shift**self.power
            return
        self._inner(x, y)
        if self.power != 1:
            np.power(y, self.power, out=y)

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """gx = gy power scale (shift + scale x) ^ (power - 1)."""
        factor = self.power * self.scale
        if self.power in (0, 1) or self.scale == 0:
            np.multiply(gy, factor, out=gx)
            return
        inner = self._inner(x, np.empty_like(x))
        if self.power != 2:
            np.power(inner, self.power - 1, out=inner)
        inner *= factor
        np.multiply(gy, inner, out=gx)

    def _inner(self, x: np.ndarray, out: np.ndarray) -> np.ndarray:
        np.multiply(x, self.scale, out=out)
        if self.shift != 0:
            out += self.shift
        return out


@layer_types.register("Exp")
class Exp(Elementwise):
    """y = base ^ (shift + scale x); base -1 stands for e."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.exp_param
        log_base = _log_base(p.base)
        with np.errstate(over="ignore"):
            factors = log_base * p.scale, np.exp(np.float64(log_base * p.shift))
            self.inner, self.outer = (self.context.dtype.type(v) for v in factors)

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        np.multiply(x, self.inner, out=y)
        np.exp(y, out=y)
        if self.outer != 1:
            y *= self.outer

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """gx = gy y scale log(base)."""
        np.multiply(gy, y * self.inner, out=gx)


@layer_types.register("Log")
class Log(Elementwise):
    """y = log(shift + scale x) / log(base); base -1 stands for e."""

    keeps_input = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.log_param
        log_base = _log_base(p.base)
        if log_base == 0:
            raise LayerError("log_param.base cannot be 1")
        factors = (1 / log_base, p.scale, p.shift)
        self.outer, self.scale, self.shift = (self.context.dtype.type(v) for v in factors)

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        np.multiply(x, self.scale, out=y)
        y += self.shift
        np.log(y, out=y)
        y *= self.outer

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """gx = gy scale / ((shift + scale x) log(base))."""
        np.multiply(gy, self.outer * self.scale / (x * self.scale + self.shift), out=gx)


def _log_base(base: float) -> float:
    """The natural logarithm of a base; 1 for base -1. Raises LayerError if the base is neither positive nor -1."""
    if base == NATURAL:
        return 1.0
    if not base > 0 or not isfinite(base):
        raise LayerError(f"base must be positive, or -1 for e; got {base}")
    return log(base)
