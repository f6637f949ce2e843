"""Activation functions without learnable parameters, powers, exponentials and logarithms (Caffe 1.0's formulas).

Notation: x is the bottom, y the top; gx and gy are the gradients of the loss with respect to them."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, log

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.bases import Elementwise, NoGradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types

RELU6_LIMIT = 6.0
BNLL_LIMIT = 50.0  # beyond it exp(x) / (exp(x) + 1) is 1 in float32


def sigmoid(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """The logistic function 1 / (1 + exp(-x)) of floats, as (tanh(x / 2) + 1) / 2, which cannot overflow; ``out`` may
    be x."""
    out = np.multiply(x, 0.5, out=out)
    np.tanh(out, out=out)
    out *= 0.5
    out += 0.5
    return out


def sigmoid_cross_entropies(x: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """-t log s(x) - (1 - t) log(1 - s(x)) of each score x and target t, s the logistic function, without overflow."""
    losses: np.ndarray = np.maximum(x, 0) - x * targets + np.log1p(np.exp(-np.abs(x)))
    return losses


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """exp(x) / sum(exp(x)) along an axis; the maximum is subtracted first, so that it cannot overflow."""
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    shares: np.ndarray = powers / powers.sum(axis=axis, keepdims=True)
    return shares


@layer_types.register("Sigmoid")
class Sigmoid(Elementwise):
    """y = 1 / (1 + exp(-x))."""

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        sigmoid(x, y)

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """gx = gy y (1 - y)."""
        np.multiply(gy, y * (1 - y), out=gx)


@layer_types.register("TanH")
class TanH(Elementwise):
    """y = tanh(x)."""

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        np.tanh(x, out=y)

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """gx = gy (1 - y^2)."""
        np.multiply(gy, 1 - y * y, out=gx)


@layer_types.register("AbsVal")
class AbsVal(Elementwise):
    """y = |x|. As in Caffe, it does not work in place."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if bottom[0] is top[0]:
            raise LayerError("does not work in place; give the top another name")

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        np.abs(x, out=y)

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """gx = gy sign(x)."""
        np.multiply(gy, np.sign(x), out=gx)


@layer_types.register("BNLL")
class Bnll(Elementwise):
    """y = log(1 + exp(x)), the binomial normal log likelihood (softplus)."""

    keeps_input = True

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        """Write y as max(x, 0) + log(1 + exp(-|x|)), which cannot overflow."""
        np.add(np.maximum(x, 0), np.log1p(np.exp(-np.abs(x))), out=y)

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """gx = gy exp(x) / (exp(x) + 1)."""
        power = np.exp(np.minimum(x, BNLL_LIMIT))
        np.multiply(gy, power / (power + 1), out=gx)


@layer_types.register("ELU")
class Elu(Elementwise):
    """y = x where x > 0, alpha (exp(x) - 1) elsewhere (Clevert, Unterthiner and Hochreiter 2016)."""

    keeps_input = True

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        alpha = x.dtype.type(self.param.elu_param.alpha)
        np.add(np.maximum(x, 0), alpha * np.expm1(np.minimum(x, 0)), out=y)

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """gx = gy where x > 0, gy (alpha + y) elsewhere."""
        alpha = x.dtype.type(self.param.elu_param.alpha)
        np.multiply(gy, np.where(x > 0, 1, alpha + y), out=gx)


@layer_types.register("Swish")
class Swish(Elementwise):
    """y = x sigmoid(beta x) (Ramachandran, Zoph and Le 2017)."""

    keeps_input = True

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        np.multiply(x, sigmoid(x * x.dtype.type(self.param.swish_param.beta)), out=y)

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """gx = gy (beta y + sigmoid(beta x) (1 - beta y))."""
        beta = x.dtype.type(self.param.swish_param.beta)
        scaled = beta * y
        np.multiply(gy, scaled + sigmoid(beta * x) * (1 - scaled), out=gx)


@layer_types.register("Clip")
class Clip(Elementwise):
    """y = min(max(x, clip_param.min), clip_param.max)."""

    keeps_input = True

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        low, high = self._limits(x)
        np.maximum(low, np.minimum(x, high), out=y)

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """gx = gy where min <= x <= max, 0 elsewhere."""
        low, high = self._limits(x)
        np.multiply(gy, (x >= low) & (x <= high), out=gx)

    def _limits(self, x: np.ndarray) -> tuple[np.floating, np.floating]:
        clip = self.param.clip_param
        return x.dtype.type(clip.min), x.dtype.type(clip.max)


@layer_types.register("Threshold")
class Threshold(NoGradient, Elementwise):
    """y = 1 where x > threshold, 0 elsewhere; it has no gradient."""

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        np.greater(x, x.dtype.type(self.param.threshold_param.threshold), out=y, casting="unsafe")


@layer_types.register("ReLU6")
class ReLU6(Elementwise):
    """y = min(x, 6) where x > 0, negative_slope x elsewhere (Howard et al. 2017; from forks of Caffe)."""

    keeps_input = True

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        slope = x.dtype.type(self.param.relu6_param.negative_slope)
        np.add(np.clip(x, 0, RELU6_LIMIT), slope * np.minimum(x, 0), out=y)

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """gx = gy where 0 < x < 6, 0 where x >= 6, negative_slope gy elsewhere."""
        slope = x.dtype.type(self.param.relu6_param.negative_slope)
        np.multiply(gy, np.where(x > 0, x < RELU6_LIMIT, slope), out=gx)


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
