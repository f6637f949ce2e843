"""Adam, fused."""

from __future__ import annotations

from math import sqrt

import numpy as np

from scaffe.jit import compiled
from scaffe.training.update_rules.base import Hyper, UpdateRule, regularized, update_rules


@update_rules.register("Adam")
class Adam(UpdateRule):
    """m ← b1 · m + (1 - b1) · g;  v ← b2 · v + (1 - b2) · g²;  w ← w - rate · c · m / (sqrt(v) + delta), g decayed,
    b1 momentum, b2 momentum2, c = sqrt(1 - b2^t) / (1 - b1^t) and t counted from 1 (Caffe 1.0; Kingma and Ba, ICLR
    2015)."""

    n_histories = 2

    def numbers(self, hyper: Hyper) -> dict[str, float]:
        """See UpdateRule."""
        return {**super().numbers(hyper), "rate": self._rate(hyper), "second": self.param.momentum2}

    def _rate(self, hyper: Hyper) -> float:
        """The rate with both moments' corrections."""
        p, t = self.param, hyper.iteration + 1
        return hyper.rate * sqrt(1 - p.momentum2**t) / (1 - p.momentum**t)

    def update(self, w: np.ndarray, g: np.ndarray, histories: list[np.ndarray], hyper: Hyper) -> None:
        """See UpdateRule; two histories, the moments."""
        one, p = w.dtype.type, self.param
        _adam(w, g, histories[0], histories[1], one(self._rate(hyper)), one(p.momentum), one(p.momentum2),
              one(p.delta), one(hyper.decay), hyper.l1, one(hyper.scale),
              hyper.keeps_step)


@compiled
def _adam(w, g, m, v, rate, b1, b2, delta, decay, l1, scale, keeps_step):
    for i in range(w.size):
        gradient = regularized(w[i], g[i], decay, l1, scale)
        m[i] = b1 * m[i] + (1 - b1) * gradient
        v[i] = b2 * v[i] + (1 - b2) * gradient * gradient
        step = rate * (m[i] / (np.sqrt(v[i]) + delta))
        w[i] -= step
        if keeps_step:
            g[i] = step
