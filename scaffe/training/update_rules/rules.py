"""The solver types' update rules, each in one fused pass; and what a solver of type LBFGS keeps and asks for."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.jit import compiled
from scaffe.training.update_rules.base import Hyper, UpdateRule, refuse_momentum, regularized, update_rules


@compiled(error_model="numpy")  # 0 / 0 is nan, which the loss shows, as in Caffe
def _sgd(w: np.ndarray, g: np.ndarray, h: np.ndarray, rate: float, momentum: float, decay: float, l1: bool,
         scale: float, keeps_step: bool) -> None:
    for i in range(w.size):
        h[i] = momentum * h[i] + rate * regularized(w[i], g[i], decay, l1, scale)
        w[i] -= h[i]
        if keeps_step:
            g[i] = h[i]


@update_rules.register("SGD")
class Sgd(UpdateRule):
    """h ← momentum · h + rate · (g + decay · w);  w ← w - h (Caffe 1.0, SGDSolver)."""

    learns_frozen = False
    kernel = staticmethod(_sgd)  # h: the last step


@compiled(error_model="numpy")  # 0 / 0 is nan, which the loss shows, as in Caffe
def _nesterov(w: np.ndarray, g: np.ndarray, h: np.ndarray, rate: float, momentum: float, decay: float, l1: bool,
              scale: float, keeps_step: bool) -> None:
    for i in range(w.size):
        before = h[i]
        h[i] = momentum * before + rate * regularized(w[i], g[i], decay, l1, scale)
        step = (1 + momentum) * h[i] - momentum * before
        w[i] -= step
        if keeps_step:
            g[i] = step


@update_rules.register("Nesterov")
class Nesterov(UpdateRule):
    """h' = momentum · h + rate · g;  w ← w - ((1 + momentum) · h' - momentum · h).

    Here g includes the decay's part (Caffe 1.0; Sutskever et al., "On the importance of initialization and momentum in
    deep learning", ICML 2013).
    """

    learns_frozen = False
    kernel = staticmethod(_nesterov)  # h: the momentum


@compiled(error_model="numpy")  # 0 / 0 is nan, which the loss shows, as in Caffe
def _adagrad(w: np.ndarray, g: np.ndarray, h: np.ndarray, rate: float, delta: float, decay: float, l1: bool,
             scale: float, keeps_step: bool) -> None:
    for i in range(w.size):
        gradient = regularized(w[i], g[i], decay, l1, scale)
        h[i] += gradient * gradient
        step = rate * (gradient / (np.sqrt(h[i]) + delta))
        w[i] -= step
        if keeps_step:
            g[i] = step


@update_rules.register("AdaGrad")
class AdaGrad(UpdateRule):
    """h ← h + g²;  w ← w - rate · g / (sqrt(h) + delta).

    Here g includes the decay's part (Caffe 1.0; Duchi et al., JMLR 2011). Raises UserError if the solver gives a
    momentum."""

    kernel = staticmethod(_adagrad)  # h: the sum of squared gradients
    constants = ("delta",)

    def __init__(self, param: Any) -> None:
        super().__init__(param)
        refuse_momentum(param, "AdaGrad")


@compiled(error_model="numpy")  # 0 / 0 is nan, which the loss shows, as in Caffe
def _rmsprop(w: np.ndarray, g: np.ndarray, h: np.ndarray, rate: float, keep: float, delta: float, decay: float,
             l1: bool, scale: float, keeps_step: bool) -> None:
    for i in range(w.size):
        gradient = regularized(w[i], g[i], decay, l1, scale)
        h[i] = keep * h[i] + (1 - keep) * gradient * gradient
        step = rate * (gradient / (np.sqrt(h[i]) + delta))
        w[i] -= step
        if keeps_step:
            g[i] = step


@update_rules.register("RMSProp")
class RmsProp(UpdateRule):
    """h ← rms_decay · h + (1 - rms_decay) · g²;  w ← w - rate · g / (sqrt(h) + delta).

    Here g includes the decay's part (Caffe 1.0; Tieleman and Hinton, Coursera lecture 6.5, 2012). Raises UserError if
    the solver gives a momentum, or an rms_decay that is below 0, or 1 or above."""

    kernel = staticmethod(_rmsprop)  # h: the running mean of squared gradients
    constants = ("rms_decay", "delta")
    second = "rms_decay"

    def __init__(self, param: Any) -> None:
        super().__init__(param)
        refuse_momentum(param, "RMSProp")
        if not 0 <= param.rms_decay < 1:
            raise UserError(f"rms_decay must be at least 0 and below 1, got {param.rms_decay:g}")


@compiled(error_model="numpy")  # 0 / 0 is nan, which the loss shows, as in Caffe
def _adadelta(w: np.ndarray, g: np.ndarray, a: np.ndarray, b: np.ndarray, rate: float, keep: float, delta: float,
              decay: float, l1: bool, scale: float, keeps_step: bool) -> None:
    for i in range(w.size):
        gradient = regularized(w[i], g[i], decay, l1, scale)
        a[i] = keep * a[i] + (1 - keep) * gradient * gradient
        step = gradient * np.sqrt((delta + b[i]) / (delta + a[i]))
        b[i] = keep * b[i] + (1 - keep) * step * step
        w[i] -= rate * step
        if keeps_step:
            g[i] = rate * step


@update_rules.register("AdaDelta")
class AdaDelta(UpdateRule):
    """a ← m · a + (1 - m) · g²;  s = g · sqrt((delta + b) / (delta + a));  b ← m · b + (1 - m) · s²;  w ← w - rate · s.

    Here g includes the decay's part, and m is the momentum (Caffe 1.0; Zeiler, arXiv:1212.5701).
    """

    n_histories = 2
    kernel = staticmethod(_adadelta)  # a, b: the running means of squared gradients and of squared steps
    constants = ("momentum", "delta")


@compiled(error_model="numpy")  # 0 / 0 is nan, which the loss shows, as in Caffe
def _adam(w: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray, rate: float, b1: float, b2: float, delta: float,
          decay: float, l1: bool, scale: float, keeps_step: bool) -> None:
    for i in range(w.size):
        gradient = regularized(w[i], g[i], decay, l1, scale)
        m[i] = b1 * m[i] + (1 - b1) * gradient
        v[i] = b2 * v[i] + (1 - b2) * gradient * gradient
        step = rate * (m[i] / (np.sqrt(v[i]) + delta))
        w[i] -= step
        if keeps_step:
            g[i] = step



@update_rules.register("Adam")
class Adam(UpdateRule):
    """m ← b1 · m + (1 - b1) · g;  v ← b2 · v + (1 - b2) · g²;  w ← w - rate · c · m / (sqrt(v) + delta).

    Here g includes the decay's part, b1 is momentum, b2 is momentum2, c = sqrt(1 - b2^t) / (1 - b1^t), and t counts
    iterations from 1 (Caffe 1.0; Kingma and Ba, ICLR 2015). Raises UserError if momentum or momentum2 is below 0, or 1
    or above."""

    n_histories = 2
    kernel = staticmethod(_adam)  # m, v: the first and second moments
    constants = ("momentum", "momentum2", "delta")
    second = "momentum2"

    def __init__(self, param: Any) -> None:
        super().__init__(param)
        for name in ("momentum", "momentum2"):
            if not 0 <= getattr(param, name) < 1:
                raise UserError(f"Adam needs a {name} of at least 0 and below 1, got {getattr(param, name):g}")

    def rate(self, hyper: Hyper) -> float:
        """The learning rate times the bias correction c."""
        p, t = self.param, hyper.iteration + 1
        return float(hyper.rate * sqrt(1 - p.momentum2**t) / (1 - p.momentum**t))


MOST_HISTORY = 100


@update_rules.register("LBFGS")
class Lbfgs(UpdateRule):
    """Limited-memory BFGS over a batch in portions (Nocedal & Wright, 7.2; Dean et al., NIPS 2012, 4.2).

    No formula on an interval: a step depends on inner products of whole vectors, and on a line search. Histories are
    the pairs (s, y), the oldest first; those not yet made are 0. Raises UserError if the solver's numbers do not fit
    together."""

    learns_frozen = False

    def __init__(self, param: Any) -> None:
        super().__init__(param)
        given = param.lbfgs_param
        refuse_momentum(param, self.name)
        if not 1 <= given.history <= MOST_HISTORY:
            raise UserError(f"lbfgs_param's history must be 1 to {MOST_HISTORY}, got {given.history}")
        if not 0 < given.c1 < given.c2 < 1:
            raise UserError(f"lbfgs_param needs 0 < c1 < c2 < 1, got c1 {given.c1:g} and c2 {given.c2:g}")
        for name in ("bundle", "max_trials"):
            if getattr(given, name) < 1:
                raise UserError(f"lbfgs_param's {name} must be at least 1, got {getattr(given, name)}")
        if param.iter_size > 1 or param.clip_gradients >= 0:
            raise UserError("iter_size and clip_gradients cannot be used with LBFGS: portions make up the batch, and "
                            "the line search bounds the step")
        if not param.base_lr > 0:
            raise UserError(f"LBFGS needs a base_lr above 0, the length of the first trial; got {param.base_lr:g}")
        self.n_histories = 2 * given.history

    def portion(self) -> int | None:
        return int(self.param.lbfgs_param.portion)
