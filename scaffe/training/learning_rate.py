"""The learning rate of each iteration: Caffe's policies, and ``plateau``, which looks at the losses."""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.files import SolverState
from scaffe.log import info

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
    """min_lr + (base_lr - min_lr) · (1 - iteration / max_iter)^power; min_lr, 0 in BVLC Caffe, is NVIDIA/caffe's."""
    lowest = p.min_lr if p.HasField("min_lr") else 0.0
    rate: float = lowest + (p.base_lr - lowest) * (1 - iteration / p.max_iter) ** p.power
    return rate


def sigmoid(p: Any, iteration: int) -> float:
    """base_lr / (1 + exp(-gamma · (iteration - stepsize)))."""
    exponent = -p.gamma * (iteration - p.stepsize)
    return float(p.base_lr / (1 + math.exp(exponent))) if exponent < LARGEST_EXPONENT else 0.0


def multifixed(p: Any, iteration: int) -> float:
    """The ``stagelr`` of the first ``stageiter`` that is not below the iteration, or of the last (intel/caffe's)."""
    if not p.stagelr or len(p.stagelr) != len(p.stageiter):
        raise UserError(f"lr_policy 'multifixed' needs as many stagelr as stageiter, got {len(p.stagelr)} and "
                        f"{len(p.stageiter)}")
    return float(next((rate for rate, last in zip(p.stagelr, p.stageiter, strict=True) if iteration <= last),
                      p.stagelr[-1]))


def sgdr(p: Any, iteration: int) -> float:
    """From base_lr down to min_lr by half a cosine, again and again (Loshchilov and Hutter, ICLR 2017).

    The first time in ``period`` iterations (max_iter if it is not above 0), then each time in p_mult times as many,
    from lr_mult times the rate (jolibrain/caffe's).
    """
    _, start, period, highest = _restarts(p, iteration)
    return float(p.min_lr + 0.5 * (highest - p.min_lr) * (1 + math.cos(math.pi * (iteration - start) / period)))


def _restarts(p: Any, iteration: int) -> tuple[int, int, int, float]:
    """Of sgdr: the number of restarts up to an iteration, the last one, its period and its highest rate."""
    number, start, highest = 0, 0, float(p.base_lr)
    period = p.period if p.period > 0 else p.max_iter
    if period < 1 or p.p_mult < 1:
        raise UserError(f"lr_policy 'sgdr' needs a period or a max_iter above 0 and a p_mult of at least 1, got "
                        f"{p.period}, {p.max_iter} and {p.p_mult:g}")
    while iteration >= start + period:
        number, start = number + 1, start + period
        period, highest = int(period * p.p_mult), highest * p.lr_mult
    return number, start, period, highest


POLICIES: dict[str, Callable[[Any, int], float]] = {
    f.__name__: f for f in (fixed, step, exp, inv, multistep, poly, sigmoid, multifixed, sgdr)
}
OTHERS = ("plateau",)  # the losses decide: rates.py


def steps_reached(p: Any, iteration: int) -> int:
    """How many times step and multistep have lowered the rate by this iteration, or sgdr has restarted; else 0."""
    if p.lr_policy == "sgdr":
        return _restarts(p, iteration)[0]
    if p.lr_policy == "step" and p.stepsize > 0:
        return int(iteration // p.stepsize)
    return sum(value <= iteration for value in p.stepvalue) if p.lr_policy == "multistep" else 0


def is_warming(p: Any, iteration: int) -> bool:
    """Whether an iteration's rate rises towards base_lr, whatever the policy."""
    return bool(iteration < p.warmup_iter or iteration < p.rampup_interval)


def _warming(p: Any, iteration: int) -> float:
    """In a line from warmup_start_lr (intel's and jolibrain's forks), or as a square from rampup_lr (NVIDIA's)."""
    if iteration < p.warmup_iter:
        return float((iteration * p.base_lr + (p.warmup_iter - iteration) * p.warmup_start_lr) / p.warmup_iter)
    return float(p.rampup_lr + (p.base_lr - p.rampup_lr) * (iteration / p.rampup_interval) ** 2)


def learning_rate(p: Any, iteration: int, policy: Callable[[Any, int], float] | None = None) -> float:
    """The learning rate of an iteration. Raises UserError if the policy is unknown, or yields no real number that
    float32 holds (such as ``inv`` where 1 + gamma · iteration is below 0)."""
    policy = policy or POLICIES.get(p.lr_policy)
    if policy is None:
        raise UserError(f"lr_policy {p.lr_policy!r} is unknown; known: {', '.join(sorted((*POLICIES, *OTHERS)))}")
    try:
        rate = (_warming if is_warming(p, iteration) else policy)(p, iteration)
    except ArithmeticError as error:
        raise UserError(f"lr_policy {p.lr_policy!r} has no rate at iteration {iteration}: {error}") from error
    if isinstance(rate, complex):
        raise UserError(f"lr_policy {p.lr_policy!r} has no rate at iteration {iteration}: a power of a number below 0")
    if not abs(rate) <= LARGEST_RATE:
        raise UserError(f"lr_policy {p.lr_policy!r} has no rate at iteration {iteration}: {rate}")
    return max(rate, p.min_lr) if p.HasField("min_lr") else rate  # NVIDIA's


class Rates:
    """The rates of one run, of a SolverParameter: those that the iteration alone decides."""

    def __init__(self, p: Any) -> None:
        self._p = p

    def before(self, iteration: int) -> float:
        """The rate that is known before the passes of an iteration. Raises UserError as ``learning_rate``."""
        return learning_rate(self._p, iteration)

    def after(self, mean_loss: Callable[[], float], iteration: int, rate: float) -> float:
        """The rate of the iteration's update; ``rate`` is what ``before`` gave. ``mean_loss``: gives the iteration's
        loss, the mean over all ranks; called by all of them or by none."""
        return rate

    def kept(self, iteration: int) -> dict[str, Any]:
        """What a snapshot after so many iterations saves: names and values of SolverState fields. Caffe's
        ``current_step`` is that of the last iteration computed."""
        return {"current_step": steps_reached(self._p, max(iteration - 1, 0))}

    def restore(self, state: SolverState) -> None:
        """Take back what ``kept`` saved."""


class Plateau(Rates):
    """base_lr · gamma^step, where a step comes when the loss has not fallen for ``plateau_winsize[step]`` iterations.

    The loss is the mean of the last ``average_loss`` ones. Its lowest value and each step start the count anew. After
    the last of ``plateau_winsize`` the rate stays. On a GPU every iteration waits for its loss. Source: SSD's fork and
    intel/caffe, sgd_solver.cpp. Raises UserError if no ``plateau_winsize``, or one below 1."""

    def __init__(self, p: Any) -> None:
        if not p.plateau_winsize or min(p.plateau_winsize) < 1:
            raise UserError(f"lr_policy 'plateau' needs plateau_winsize, all above 0; got {list(p.plateau_winsize)}")
        super().__init__(p)
        self._step, self._last_event = 0, 0
        self._minimum = float(np.finfo(np.float32).max)
        self._losses: deque[float] = deque(maxlen=max(p.average_loss, 1))

    def before(self, iteration: int) -> float:
        return learning_rate(self._p, iteration, lambda p, _: float(p.base_lr * p.gamma**self._step))

    def after(self, mean_loss: Callable[[], float], iteration: int, rate: float) -> float:
        """See Rates: the rate falls in the iteration whose loss is one too many that is no lower."""
        self._losses.append(mean_loss())
        if is_warming(self._p, iteration):
            return rate
        smoothed = float(np.float32(sum(self._losses) / len(self._losses)))
        if smoothed < self._minimum:
            self._minimum, self._last_event = smoothed, iteration
        sizes = self._p.plateau_winsize
        if self._step < len(sizes) and iteration >= self._last_event + sizes[self._step]:
            self._step, self._last_event = self._step + 1, iteration
            info(f"Plateau Status: Iteration {iteration}, step = {self._step}")
        return self.before(iteration)

    def kept(self, iteration: int) -> dict[str, Any]:
        return {"current_step": self._step, "minimum_loss": self._minimum, "iter_last_event": self._last_event,
                "losses": list(self._losses)}

    def restore(self, state: SolverState) -> None:
        """See Rates. States of SSD's fork hold no losses; ``average_loss`` then begins anew, as there."""
        self._step, self._last_event = state.current_step, state.iter_last_event or 0
        if state.minimum_loss is not None:
            self._minimum = state.minimum_loss
        self._losses.extend(state.losses)


def rates_of(p: Any) -> Rates:
    """The rates that a SolverParameter asks for.
    Raises UserError: the policy is unknown or lacks a number, or has no first rate."""
    rates = (Plateau if p.lr_policy in OTHERS else Rates)(p)
    rates.before(0)  # an unknown policy shows before hours of training
    return rates
