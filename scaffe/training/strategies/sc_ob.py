"""SC-OB: broadcasts overlapped with forward."""

from __future__ import annotations

from scaffe.training.strategies import bucketed, whole
from scaffe.training.strategies.base import strategies
from scaffe.training.strategies.composed import Composed


@strategies.register("sc-ob")
class ScOb(Composed):
    """All buckets' non-blocking broadcasts are posted before forward. Each is waited for just before the first layer
    that needs it. Gradients are reduced whole after backward (Awan et al., PPoPP'17, 4.2)."""

    parameters_kind, gradients_kind = bucketed.Broadcasts, whole.Reduction
