"""Nesterov's accelerated gradient, fused."""

from __future__ import annotations

import numpy as np
from numba import njit

from scaffe.update_rules.base import Hyper, UpdateRule, regularized, update_rules


@update_rules.register("Nesterov")
class Nesterov(UpdateRule):
    """h' = momentum · h + rate · g;  w ← w - ((1 + momentum) · h' - momentum · h), with g decayed (Caffe 1.0; Sutskever
    et al., "On the importance of initialization and momentum in deep learning", ICML 2013)."""

    def update(self, w: np.ndarray, g: np.ndarray, histories: list[np.ndarray], hyper: Hyper) -> None:
        """See UpdateRule; one history, the last step."""
        one = w.dtype.type
        _nesterov(w, g, histories[0], one(hyper.rate), one(self.param.momentum), one(hyper.decay), hyper.l1,
                  one(hyper.scale))


@njit(cache=True, nogil=True)
def _nesterov(w, g, h, rate, momentum, decay, l1, scale):
    for i in range(w.size):
        before = h[i]
        h[i] = momentum * before + rate * regularized(w[i], g[i], decay, l1, scale)
        w[i] -= (1 + momentum) * h[i] - momentum * before
