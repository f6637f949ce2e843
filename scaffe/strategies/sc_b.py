"""SC-B, S-Caffe's basic design: broadcast everything, compute, reduce everything to the root."""

from __future__ import annotations

from scaffe.strategies import whole
from scaffe.strategies.base import strategies
from scaffe.strategies.composed import Composed


@strategies.register("sc-b")
class ScB(Composed):
    """One blocking broadcast before forward and one blocking reduction after backward (Awan et al., PPoPP'17, 4.1)."""

    parameters_kind, gradients_kind = whole.Broadcast, whole.Reduction
