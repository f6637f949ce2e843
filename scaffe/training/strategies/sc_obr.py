"""SC-OBR: broadcasts overlapped with forward, reductions with backward."""

from __future__ import annotations

from scaffe.training.strategies import bucketed
from scaffe.training.strategies.base import strategies
from scaffe.training.strategies.composed import Composed


@strategies.register("sc-obr")
class ScObr(Composed):
    """Broadcasts as in sc-ob; a helper thread reduces each bucket to the root as soon as backward has completed it
    (Awan et al., PPoPP'17, 4.3)."""

    parameters_kind, gradients_kind = bucketed.Broadcasts, bucketed.Reductions
