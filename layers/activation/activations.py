"""Activation functions without learnable parameters (Caffe 1.0's formulas).

Notation: x is the bottom, y the top; gx and gy are the gradients of the loss with respect to them.
"""

from __future__ import annotations

from collections.abc import Sequence

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
