"""Element by element, with the math module: what each activation gives for one number."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, tanh

import numpy as np


def each(function: Callable[..., float], x: np.ndarray, **options: float) -> np.ndarray:
    """function(element, **options) of every element."""
    return np.array([function(float(v), **options) for v in x.ravel()]).reshape(x.shape)


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x)."""
    return 1 / (1 + exp(-x))


def bnll(x: float) -> float:
    """log(1 + e^x)."""
    return log(1 + exp(x))


def elu(x: float, alpha: float = 1.0) -> float:
    """x above 0, alpha (e^x - 1) below."""
    return x if x > 0 else alpha * (exp(x) - 1)


def swish(x: float, beta: float = 1.0) -> float:
    """x sigmoid(beta x)."""
    return x * sigmoid(beta * x)


def clip(x: float, low: float, high: float) -> float:
    """x held between low and high."""
    return low if x < low else high if x > high else x


def threshold(x: float, limit: float = 0.0) -> float:
    """1 above the limit."""
    return 1.0 if x > limit else 0.0


def power(x: float, power: float = 1.0, scale: float = 1.0, shift: float = 0.0) -> float:
    """(shift + scale x)^power."""
    return (shift + scale * x) ** power


def exponential(x: float, base: float = -1.0, scale: float = 1.0, shift: float = 0.0) -> float:
    """base^(shift + scale x), e for base -1."""
    return exp(shift + scale * x) if base == -1 else base ** (shift + scale * x)


def logarithm(x: float, base: float = -1.0, scale: float = 1.0, shift: float = 0.0) -> float:
    """log(shift + scale x) to the base, e for base -1."""
    return log(shift + scale * x) if base == -1 else log(shift + scale * x, base)


def prelu(x: np.ndarray, slopes: list[float]) -> np.ndarray:
    """x above 0, slope x below; a slope per channel (axis 1), or one for all."""
    y = np.empty_like(x)
    for place in np.ndindex(x.shape):
        slope = slopes[place[1] if len(slopes) > 1 else 0]
        y[place] = x[place] if x[place] > 0 else slope * x[place]
    return y


FUNCTIONS: dict[str, Callable[..., float]] = {
    "Sigmoid": sigmoid, "TanH": tanh, "AbsVal": abs, "BNLL": bnll, "ELU": elu, "Swish": swish, "Clip": clip,
    "Threshold": threshold, "Power": power, "Exp": exponential, "Log": logarithm,
}
