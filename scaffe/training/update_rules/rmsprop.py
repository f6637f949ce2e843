"""RMSProp, fused."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.threads.parts import in_parts
from scaffe.training.update_rules.base import Hyper, UpdateRule, refuse_momentum, regularized, update_rules


@update_rules.register("RMSProp")
class RmsProp(UpdateRule):
    """h ← rms_decay · h + (1 - rms_decay) · g²;  w ← w - rate · g / (sqrt(h) + delta).

    Here g includes the decay's part (Caffe 1.0; Tieleman and Hinton, Coursera lecture 6.5, 2012).

    Raises:
        UserError: the solver gives a momentum, or an rms_decay that is below 0, or 1 or above.
    """

    def __init__(self, param: Any) -> None:
        super().__init__(param)
        refuse_momentum(param, "RMSProp")
        if not 0 <= param.rms_decay < 1:
            raise UserError(f"rms_decay must be at least 0 and below 1, got {param.rms_decay:g}")

    def numbers(self, hyper: Hyper) -> dict[str, float]:
        """See UpdateRule."""
        return {**super().numbers(hyper), "second": self.param.rms_decay}

    def update(self, w: np.ndarray, g: np.ndarray, histories: list[np.ndarray], hyper: Hyper) -> None:
        """See UpdateRule. One history: the running mean h of squared gradients."""
        one = w.dtype.type
        in_parts(_rmsprop, (w, g, histories[0]), one(hyper.rate), one(self.param.rms_decay), one(self.param.delta),
                 one(hyper.decay), hyper.l1, one(hyper.scale), hyper.keeps_step)


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
