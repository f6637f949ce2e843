"""One local step of a Downpour replica: the gradient with its decay accrues, and the replica's parameters follow it."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.training.update_rules.base import Hyper, UpdateRule, regularized


class Accrue(UpdateRule):
    """h ← h + g;  w ← w - rate · g, with g scaled and decayed. Not a solver's type: what a replica does by itself.

    Its one history is what has accrued since the last push (Dean et al., NIPS 2012, Algorithm 1.1).
    """

    learns_frozen = False

    def __init__(self, param: Any) -> None:
        super().__init__(param)
        self.name = "Accrue"

    def update(self, w: np.ndarray, g: np.ndarray, histories: list[np.ndarray], hyper: Hyper) -> None:
        """See UpdateRule. The gradients are left as they are."""
        one = w.dtype.type
        _accrue(w, g, histories[0], one(hyper.scale), one(hyper.decay), hyper.l1, one(hyper.rate))


@compiled
def _accrue(w: np.ndarray, g: np.ndarray, accrued: np.ndarray, scale: float, decay: float, l1: bool,
            rate: float) -> None:
    for i in range(w.size):
        gradient = regularized(w[i], g[i], decay, l1, scale)
        accrued[i] += gradient
        w[i] -= rate * gradient
