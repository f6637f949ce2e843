"""Caffe's learning rate policies: functions of a SolverParameter and the iteration, in a table by name."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from scaffe.errors import UserError

LARGEST_EXPONENT = math.log(sys.float_info.max)
LARGEST_RATE = float(np.finfo(np.float32).max)  # parameters are float32


def fixed(p: Any, iteration: int) -> float:
    """base_lr."""
    return float(p.base_lr)


def step(p: Any, iteration: int) -> float:
    """base_lr · gamma^floor(iteration / stepsize)."""
    if p.stepsize <= 0:
        raise UserError(f"lr_policy 'step' needs a stepsize above 0, got {p.stepsize}")
    return float(p.base_lr * p.gamma ** (iteration // p.stepsize))


def exp(p: Any, iteration: int) -> float:
    """base_lr · gamma^iteration."""
    return float(p.base_lr * p.gamma**iteration)


def inv(p: Any, iteration: int) -> float:
    """base_lr · (1 + gamma · iteration)^(-power)."""
    rate: float = p.base_lr * (1 + p.gamma * iteration) ** -p.power
    return rate


def multistep(p: Any, iteration: int) -> float:
    """base_lr · gamma^(number of stepvalues reached)."""
    return float(p.base_lr * p.gamma ** steps_reached(p, iteration))


def poly(p: Any, iteration: int) -> float:
    """base_lr · (1 - iteration / max_iter)^power."""
    rate: float = p.base_lr * (1 - iteration / p.max_iter) ** p.power
    return rate


def sigmoid(p: Any, iteration: int) -> float:
    """base_lr / (1 + exp(-gamma · (iteration - stepsize)))."""
    exponent = -p.gamma * (iteration - p.stepsize)
    return float(p.base_lr / (1 + math.exp(exponent))) if exponent < LARGEST_EXPONENT else 0.0


POLICIES: dict[str, Callable[[Any, int], float]] = {
    f.__name__: f for f in (fixed, step, exp, inv, multistep, poly, sigmoid)
}


def steps_reached(p: Any, iteration: int) -> int:
    """How many times the policies step and multistep have lowered the rate by this iteration; 0 for other policies."""
    if p.lr_policy == "step" and p.stepsize > 0:
        return int(iteration // p.stepsize)
    return sum(value <= iteration for value in p.stepvalue) if p.lr_policy == "multistep" else 0


def current_step(p: Any, iteration: int) -> int:
    """The ``current_step`` that Caffe saves after so many iterations: ``steps_reached`` at the last one computed."""
    return steps_reached(p, max(iteration - 1, 0))


def learning_rate(p: Any, iteration: int) -> float:
    """The learning rate of an iteration.

    Args:
        p: the SolverParameter message.
        iteration: iterations done before this one.

    Raises:
        UserError: the policy is unknown, or yields no real number that float32 holds (such as ``inv`` where
            1 + gamma · iteration is below 0).
    """
    policy = POLICIES.get(p.lr_policy)
    if policy is None:
        raise UserError(f"lr_policy {p.lr_policy!r} is unknown; known: {', '.join(sorted(POLICIES))}")
    try:
        rate = policy(p, iteration)
    except ArithmeticError as error:
        raise UserError(f"lr_policy {p.lr_policy!r} has no rate at iteration {iteration}: {error}") from error
    if isinstance(rate, complex):
        raise UserError(f"lr_policy {p.lr_policy!r} has no rate at iteration {iteration}: a power of a number below 0")
    if not abs(rate) <= LARGEST_RATE:
        raise UserError(f"lr_policy {p.lr_policy!r} has no rate at iteration {iteration}: {rate}")
    return rate
