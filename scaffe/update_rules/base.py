"""What an update rule is: one fused pass over an interval of the flat buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from layers.registry import Registry

update_rules: Registry[type[UpdateRule]] = Registry("solver type", "scaffe.update_rules")


@dataclass(frozen=True)
class Hyper:
    """The numbers of one update, the same for all parameters.

    Attributes:
        rate: the learning rate of this iteration.
        decay: the weight decay.
        l1: decay by the weights' signs instead of the weights.
        scale: factor on every gradient first (1 / (iter_size · ranks), and the clipping of the norm).
        iteration: iterations done before this one.
    """

    rate: float
    decay: float
    l1: bool
    scale: float
    iteration: int


class UpdateRule:
    """Arithmetic on flat arrays: subclasses fill ``update``.

    Args:
        param: the SolverParameter message (momentum, delta, ...).
    """

    n_histories: ClassVar[int] = 1

    def __init__(self, param: Any) -> None:
        self.param = param

    def update(self, w: np.ndarray, g: np.ndarray, histories: list[np.ndarray], hyper: Hyper) -> None:
        """Change w and the histories by the gradient g (left as it is), elementwise; ``hyper.rate`` and
        ``hyper.decay`` come multiplied by the parameter's lr_mult and decay_mult."""
        raise NotImplementedError
