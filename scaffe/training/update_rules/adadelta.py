"""AdaDelta, fused."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.threads.parts import in_parts
from scaffe.training.update_rules.base import Hyper, UpdateRule, regularized, update_rules


@update_rules.register("AdaDelta")
class AdaDelta(UpdateRule):
    """a ← m · a + (1 - m) · g²;  s = g · sqrt((delta + b) / (delta + a));  b ← m · b + (1 - m) · s²;  w ← w - rate · s.

    Here g includes the decay's part, and m is the momentum (Caffe 1.0; Zeiler, arXiv:1212.5701).
    """

    n_histories = 2

    def update(self, w: np.ndarray, g: np.ndarray, histories: list[np.ndarray], hyper: Hyper) -> None:
        """See UpdateRule. Two histories: the running means a and b of squared gradients and of squared steps."""
        one = w.dtype.type
        in_parts(_adadelta, (w, g, histories[0], histories[1]), one(hyper.rate), one(self.param.momentum),
                 one(self.param.delta), one(hyper.decay), hyper.l1, one(hyper.scale), hyper.keeps_step)


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
