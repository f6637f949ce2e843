"""SGD with momentum and Nesterov's accelerated gradient, each one fused pass over w, g and h."""

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


@update_rules.register("Nesterov")
class Nesterov(UpdateRule):
    """h' = momentum · h + rate · g;  w ← w - ((1 + momentum) · h' - momentum · h).

    Here g includes the decay's part (Caffe 1.0; Sutskever et al., "On the importance of initialization and momentum in
    deep learning", ICML 2013).
    """

    learns_frozen = False

    def update(self, w: np.ndarray, g: np.ndarray, histories: list[np.ndarray], hyper: Hyper) -> None:
        """See UpdateRule. One history: the momentum h."""
        one = w.dtype.type
        in_parts(_nesterov, (w, g, histories[0]), one(hyper.rate), one(self.param.momentum), one(hyper.decay), hyper.l1,
                 one(hyper.scale), hyper.keeps_step)


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
