"""Loss scaling for fp16: the loss is multiplied by a factor so that small gradients do not round to zero.

Updates whose gradients overflowed are skipped. Micikevicius et al., "Mixed Precision Training" (ICLR 2018), section
3.2, with a factor that adapts: halved after an overflow, doubled after PATIENCE iterations without one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.files import SolverState
from scaffe.training.solver import Observer, Solver

FIRST, LARGEST = 2.0**12, 2.0**20
PATIENCE = 1000  # iterations without an overflow before the factor is doubled


def next_scale(scale: float, n_clean: int, overflowed: bool) -> tuple[float, int]:
    """Adapt the factor after a look for overflows. Returns the factor from now on, and the iterations without an
    overflow to count on from.

    Args:
        n_clean: iterations without an overflow so far, those since the last look included.
    """
    if overflowed:
        return max(scale / 2, 1.0), 0
    if n_clean >= PATIENCE:
        return min(scale * 2, LARGEST), 0
    return scale, n_clean


class LossScale(Observer):
    """Scales the training net's loss, divides the scale out in the update, and regularly looks for overflows."""

    def __init__(self) -> None:
        self._scale, self._n_clean, self._since = FIRST, 0, 0

    def begin(self, solver: Solver) -> None:
        solver.updater.guard()
        self._apply(solver)

    def after_iteration(self, solver: Solver) -> None:
        """See Observer. Every CHECK_EVERY iterations the ranks agree on the factor; the host then waits for the
        device."""
        self._since += 1
        if self._since >= solver.net.context.kernels.CHECK_EVERY:
            self._look(solver)

    def kept(self, solver: Solver) -> dict[str, int]:
        """See Observer. Looks for overflows first, so that a resumed run misses none."""
        self._look(solver)
        return {"loss_scale": int(self._scale), "clean_iterations": self._n_clean}

    def restore(self, state: SolverState) -> None:
        self._scale, self._n_clean = float(state.loss_scale or FIRST), state.clean_iterations or 0

    def _look(self, solver: Solver) -> None:
        overflowed = np.array([solver.updater.take_overflows()], np.float64)
        peers = solver.strategy.in_step.peers
        if peers.n_ranks > 1:
            peers.allreduce(overflowed, "max", "mpi")
        scale, self._n_clean = next_scale(self._scale, self._n_clean + self._since, bool(overflowed[0]))
        self._since = 0
        if scale != self._scale:
            self._scale = scale
            self._apply(solver)

    def _apply(self, solver: Solver) -> None:
        solver.net.scale_loss(self._scale)
        solver.updater.gradient_scale = 1 / self._scale


def needs_scale(dtype: Any) -> bool:
    """Whether activations of this dtype need loss scaling: float16 does; bfloat16 has the range of float32."""
    return bool(np.dtype(dtype) == np.float16)
