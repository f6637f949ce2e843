"""SC-B, S-Caffe's basic design: broadcast everything, compute, reduce everything to the root."""

from __future__ import annotations

from scaffe.training.strategies import whole
from scaffe.training.strategies.base import strategies
from scaffe.training.strategies.composed import Composed


@strategies.register("sc-b")
class ScB(Composed):
    """One blocking broadcast before forward and one blocking reduction after backward (Awan et al., PPoPP'17, 4.1)."""

    parameters_kind, gradients_kind = whole.Broadcast, whole.Reduction
