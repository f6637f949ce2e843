"""Local steps of a Downpour replica, and when it fetches and pushes (Dean et al., NIPS 2012, 4.1 and Algorithm 1.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.training.update_rules.base import Hyper, UpdateRule, regularized


class LocalUpdate(UpdateRule):
    """h ← h + g;  w ← w - rate · g, with g scaled and decayed: a replica's local step, not a type of solver.

    Its one history is the sum of the gradients since the last push (Dean et al., NIPS 2012, Algorithm 1.1).
    """

    learns_frozen = False

    def __init__(self, param: Any) -> None:
        super().__init__(param)
        self.name = "LocalUpdate"

    def update(self, w: np.ndarray, g: np.ndarray, histories: list[np.ndarray], hyper: Hyper) -> None:
        """See UpdateRule. The gradients are left as they are."""
        one = w.dtype.type
        _local_update(w, g, histories[0], one(hyper.scale), one(hyper.decay), hyper.l1, one(hyper.rate))


@compiled
def _local_update(w: np.ndarray, g: np.ndarray, unpushed: np.ndarray, scale: float, decay: float, l1: bool,
                  rate: float) -> None:
    for i in range(w.size):
        gradient = regularized(w[i], g[i], decay, l1, scale)
        unpushed[i] += gradient
        w[i] -= rate * gradient


@dataclass
class Schedule:
    """Decides when one replica fetches and pushes.

    Attributes:
        is_fetching: a fetch has been started, and what it brings not been taken over.
        is_due: a push is to start as soon as it can.
        n_unpushed: gradients that have accumulated since the last push started.
    """

    n_fetch: int
    n_push: int
    is_fetching: bool = False
    is_due: bool = False
    n_unpushed: int = 0

    def takes_fetched(self, has_come: bool) -> bool:
        """Whether to take over, before a step, the fetched parameters, if what was asked for last has come."""
        if not (self.is_fetching and has_come):
            return False
        self.is_fetching = False
        return True

    def starts_fetch(self, step: int) -> bool:
        """Whether to start a fetch before step ``step``, after ``takes_fetched``; never while another is under way."""
        if self.is_fetching or step % self.n_fetch:
            return False
        self.is_fetching = True
        return True

    def stepped(self, step: int) -> None:
        """Note that the gradient of step ``step`` has been added to the accumulated ones."""
        self.n_unpushed += 1
        self.is_due = self.is_due or step % self.n_push == 0

    def starts_push(self, is_free: bool) -> bool:
        """Whether to push the accumulated gradients, if the push before is over. Called after ``stepped``."""
        if not (self.is_due and is_free):
            return False
        self.is_due, self.n_unpushed = False, 0
        return True

    def synchronizes(self) -> bool:
        """Whether to push the accumulated gradients before all replicas synchronize. A fetch under way is forgotten."""
        had = self.n_unpushed > 0
        self.is_fetching, self.is_due, self.n_unpushed = False, False, 0
        return had
