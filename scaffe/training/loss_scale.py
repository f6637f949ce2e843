"""Loss scaling for fp16: gradients too small for the type are made larger, and updates that overflowed are left out.

Micikevicius et al., "Mixed Precision Training" (ICLR 2018), section 3.2, with a factor that finds its own size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.files import SolverState
from scaffe.training.solver import Observer, Solver

FIRST, LARGEST = 2.0**12, 2.0**20
PATIENCE = 1000  # iterations without an overflow before the factor is doubled


def next_scale(scale: float, n_clean: int, overflowed: bool) -> tuple[float, int]:
    """The factor from here on, and how many iterations count as clean, after some more of them."""
    if overflowed:
        return max(scale / 2, 1.0), 0
    if n_clean >= PATIENCE:
        return min(scale * 2, LARGEST), 0
    return scale, n_clean


class LossScale(Observer):
    """Scales the training net's losses, unscales in the update, and looks now and then for what overflowed."""

    def __init__(self) -> None:
        self._scale, self._n_clean, self._since = FIRST, 0, 0

    def begin(self, solver: Solver) -> None:
        """See Observer."""
        solver.updater.guard()
        self._apply(solver)

    def after_iteration(self, solver: Solver) -> None:
        """See Observer; ranks agree on the factor, which costs the host a wait for the device."""
        self._since += 1
        if self._since >= solver.net.context.kernels.CHECK_EVERY:
            self._look(solver)

    def kept(self, solver: Solver) -> dict[str, int]:
        """See Observer; looks first, so that a run that goes on has missed nothing."""
        self._look(solver)
        return {"loss_scale": int(self._scale), "clean_iterations": self._n_clean}

    def restore(self, state: SolverState) -> None:
        """See Observer."""
        self._scale, self._n_clean = float(state.loss_scale or FIRST), state.clean_iterations or 0

    def _look(self, solver: Solver) -> None:
        overflowed = np.array([solver.updater.take_overflows()], np.float64)
        if solver.communicator.n_ranks > 1:
            solver.communicator.allreduce(overflowed, "max", "mpi")
        scale, self._n_clean = next_scale(self._scale, self._n_clean + self._since, bool(overflowed[0]))
        self._since = 0
        if scale != self._scale:
            self._scale = scale
            self._apply(solver)

    def _apply(self, solver: Solver) -> None:
        solver.net.scale_loss(self._scale)
        solver.updater.gradient_scale = 1 / self._scale


def needs_scale(dtype: Any) -> bool:
    """Whether gradients of that type of activations vanish unless they are scaled: bfloat16's range is float32's."""
    return bool(np.dtype(dtype) == np.float16)
