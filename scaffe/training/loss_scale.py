"""Loss scaling for fp16: the loss is multiplied by a factor so that small gradients do not round to zero.

Updates whose gradients overflowed are skipped. Micikevicius et al., "Mixed Precision Training" (ICLR 2018), section
3.2, with a factor that adapts: halved after an overflow, doubled after PATIENCE iterations without one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.files import SolverState
from scaffe.layers.kernels.backend import Guard, is_device
from scaffe.training.solver import Observer, Solver

FIRST, LARGEST = 2.0**12, 2.0**20
PATIENCE = 1000  # iterations without an overflow before the factor is doubled


class LossScale(Observer):
    """Scales the training net's loss by a factor on the device, which adapts there in every iteration. The ranks agree
    on overflows before each update, so that all have the same factor."""

    def __init__(self) -> None:
        self._scale, self._n_clean = FIRST, 0
        self._guard: Guard | None = None

    def begin(self, solver: Solver) -> None:
        kernels = solver.net.context.kernels
        if is_device(kernels):
            self._guard = solver.updater.guard = kernels.Guard(self._scale, self._n_clean)
            solver.net.scale_loss(self._guard.scale)

    def after_iteration(self, solver: Solver) -> None:
        if self._guard is not None:
            self._guard.adapt(PATIENCE, LARGEST)
            solver.net.scale_loss(self._guard.scale)

    def kept(self, solver: Solver) -> dict[str, int]:
        """See Observer. The host waits for the device."""
        scale, n_clean = (self._scale, self._n_clean) if self._guard is None else self._guard.read()
        return {"loss_scale": int(scale), "clean_iterations": n_clean}

    def restore(self, state: SolverState) -> None:
        self._scale, self._n_clean = float(state.loss_scale or FIRST), state.clean_iterations or 0


def needs_scale(dtype: Any) -> bool:
    """Whether activations of this dtype need loss scaling: float16 does; bfloat16 has the range of float32."""
    return bool(np.dtype(dtype) == np.float16)
