"""SGD with momentum, fused: one pass reads w, g and h, and writes w and h."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.threads.parts import in_parts
from scaffe.training.update_rules.base import Hyper, UpdateRule, regularized, update_rules


@update_rules.register("SGD")
class Sgd(UpdateRule):
    """h ← momentum · h + rate · (g + decay · w);  w ← w - h (Caffe 1.0, SGDSolver)."""

    learns_frozen = False

    def update(self, w: np.ndarray, g: np.ndarray, histories: list[np.ndarray], hyper: Hyper) -> None:
        """See UpdateRule. One history: the last step h."""
        one = w.dtype.type
        in_parts(_sgd, (w, g, histories[0]), one(hyper.rate), one(self.param.momentum), one(hyper.decay), hyper.l1,
                 one(hyper.scale), hyper.keeps_step)


@compiled(error_model="numpy")  # 0 / 0 is nan, which the loss shows, as in Caffe
def _sgd(w: np.ndarray, g: np.ndarray, h: np.ndarray, rate: float, momentum: float, decay: float, l1: bool,
         scale: float, keeps_step: bool) -> None:
    for i in range(w.size):
        h[i] = momentum * h[i] + rate * regularized(w[i], g[i], decay, l1, scale)
        w[i] -= h[i]
        if keeps_step:
            g[i] = h[i]
