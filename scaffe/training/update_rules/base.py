"""What an update rule is: one fused pass over an interval of the flat buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from scaffe.errors import UserError
from scaffe.jit import compiled
from scaffe.layers.base.registry import Registry

update_rules: Registry[type[UpdateRule]] = Registry("solver type", "scaffe.training.update_rules")


@dataclass(frozen=True)
class Hyper:
    """The numbers of one update, the same for all parameters.

    Attributes:
        rate: the learning rate of this iteration.
        decay: the weight decay.
        l1: decay by the weights' signs instead of the weights.
        scale: factor on every gradient first (1 / (iter_size · ranks), and the clipping of the norm).
        iteration: iterations done before this one.
        keeps_step: leave in g what was taken off w, as Caffe's diffs hold it after an update; else g stays as it is.
    """

    rate: float
    decay: float
    l1: bool
    scale: float
    iteration: int
    keeps_step: bool = False


class UpdateRule:
    """Arithmetic on flat arrays: subclasses fill ``update``.

    Args:
        param: the SolverParameter message (momentum, delta, ...).
    """

    n_histories: ClassVar[int] = 1
    learns_frozen: ClassVar[bool] = True  # whether the histories change where the rate is 0

    def __init__(self, param: Any) -> None:
        self.param, self.name = param, param.type or "SGD"

    def numbers(self, hyper: Hyper) -> dict[str, float]:
        """The rule's own numbers, for kernels elsewhere: rate, momentum, second (a second decay rate) and delta."""
        return {"rate": hyper.rate, "momentum": self.param.momentum, "second": 0.0, "delta": self.param.delta}

    def update(self, w: np.ndarray, g: np.ndarray, histories: list[np.ndarray], hyper: Hyper) -> None:
        """Change w and the histories by the gradient g, elementwise; ``hyper.rate`` and
        ``hyper.decay`` come multiplied by the parameter's lr_mult and decay_mult."""
        raise NotImplementedError


def refuse_momentum(param: Any, name: str) -> None:
    """Raise UserError where a rule that has no momentum is given one."""
    if param.momentum:
        raise UserError(f"momentum cannot be used with {name}, got {param.momentum:g}")


@compiled(inline="always")
def regularized(w: float, g: float, decay: float, l1: bool, scale: float) -> float:
    """One element's scaled gradient with the decay's: scale · g + decay · w, or decay · sign(w)."""
    return scale * g + decay * (np.sign(w) if l1 else w)
