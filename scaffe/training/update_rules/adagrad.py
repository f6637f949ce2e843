"""AdaGrad, fused."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.threads.parts import in_parts
from scaffe.training.update_rules.base import Hyper, UpdateRule, refuse_momentum, regularized, update_rules


@update_rules.register("AdaGrad")
class AdaGrad(UpdateRule):
    """h ← h + g²;  w ← w - rate · g / (sqrt(h) + delta).

    Here g includes the decay's part (Caffe 1.0; Duchi et al., JMLR 2011).

    Raises:
        UserError: the solver gives a momentum.
    """

    def __init__(self, param: Any) -> None:
        super().__init__(param)
        refuse_momentum(param, "AdaGrad")

    def update(self, w: np.ndarray, g: np.ndarray, histories: list[np.ndarray], hyper: Hyper) -> None:
        """See UpdateRule. One history: the sum h of squared gradients."""
        one = w.dtype.type
        in_parts(_adagrad, (w, g, histories[0]), one(hyper.rate), one(self.param.delta), one(hyper.decay), hyper.l1,
                 one(hyper.scale), hyper.keeps_step)


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
