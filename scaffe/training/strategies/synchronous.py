"""S-Caffe's designs (sections 4.1 to 4.3): SC-B, SC-OB, its naive form, SC-OBR."""

from __future__ import annotations

from scaffe.training.strategies import blocking, bucketed
from scaffe.training.strategies.base import strategies
from scaffe.training.strategies.buckets import Bucket
from scaffe.training.strategies.composed import Composed, add_wire_flag
from scaffe.training.strategies.replica import Replica
from scaffe.training.strategies.roles import Roles
from scaffe.training.strategies.transfers import Buckets


@strategies.register("sc-b")
class ScB(Composed):
    """One blocking broadcast before forward and one blocking reduction after backward (Awan et al., PPoPP'17, 4.1)."""

    roles = Roles(add_wire_flag, trains_parts=True)  # it has no buckets
    parameter_transfer, gradient_transfer = blocking.Broadcast, blocking.Reduction


@strategies.register("sc-ob")
class ScOb(Composed):
    """All buckets' non-blocking broadcasts are posted before forward. Each is waited for just before the first layer
    that needs it. Gradients are reduced whole after backward (Awan et al., PPoPP'17, 4.2)."""

    parameter_transfer, gradient_transfer = bucketed.Broadcasts, blocking.Reduction


class NextBroadcasts(bucketed.Broadcasts):
    """While the layers of one bucket compute, only the next bucket is being broadcast."""

    def __init__(self, replica: Replica, buckets: Buckets) -> None:
        super().__init__(replica, buckets)
        self._left: list[Bucket] = []

    def post(self) -> None:
        """Post the first bucket if parameters have changed."""
        if self.are_stale:
            self._left = list(self.buckets.together)
            self._post_next()
        self.are_stale = False

    def wait_for(self, layer_index: int) -> None:
        """If a bucket begins with this layer, wait for it and post the next one."""
        super().wait_for(layer_index)
        if layer_index in self.buckets.by_first_layer:
            self._post_next()

    def wait_all(self) -> None:
        self.post()
        while self._left:
            self._post_next()
        super().wait_all()

    def _post_next(self) -> None:
        if self._left:
            self._start(self._left.pop(0))


@strategies.register("sc-ob-naive")
class ScObNaive(Composed):
    """Layer i+1's broadcast is posted when layer i begins (Awan et al., PPoPP'17, 4.2).

    The paper rejects this variant: a layer that computes for a shorter time than the next layer's broadcast takes
    hides only part of it.
    """

    parameter_transfer, gradient_transfer = NextBroadcasts, blocking.Reduction


@strategies.register("sc-obr")
class ScObr(Composed):
    """Broadcasts as in sc-ob; a helper thread reduces each bucket to the root as soon as backward has completed it
    (Awan et al., PPoPP'17, 4.3)."""

    parameter_transfer, gradient_transfer = bucketed.Broadcasts, bucketed.Reductions
