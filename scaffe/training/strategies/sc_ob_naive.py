"""The naive SC-OB, for comparison: while a layer computes, only the next bucket's broadcast is under way."""

from __future__ import annotations

from scaffe.training.strategies import bucketed, whole
from scaffe.training.strategies.base import strategies
from scaffe.training.strategies.buckets import Bucket
from scaffe.training.strategies.composed import Composed
from scaffe.training.strategies.parts import Buckets
from scaffe.training.strategies.replica import Replica


class NextBroadcasts(bucketed.Broadcasts):
    """While the layers of one bucket compute, only the next bucket is being broadcast."""

    def __init__(self, replica: Replica, buckets: Buckets) -> None:
        super().__init__(replica, buckets)
        self._left: list[Bucket] = []

    def post(self) -> None:
        """Post the first bucket if parameters have changed."""
        if self.are_stale:
            self._left = list(self.buckets.late)
            self._post_next()
        self.are_stale = False

    def wait_for(self, layer_index: int) -> None:
        """If a bucket begins with this layer, wait for it and post the next one."""
        super().wait_for(layer_index)
        if layer_index in self.buckets.by_first_layer:
            self._post_next()

    def settle(self) -> None:
        """See Parameters."""
        self.post()
        while self._left:
            self._post_next()
        super().settle()

    def _post_next(self) -> None:
        if self._left:
            self._start(self._left.pop(0))


@strategies.register("sc-ob-naive")
class ScObNaive(Composed):
    """Layer i+1's broadcast is posted when layer i begins (Awan et al., PPoPP'17, 4.2).

    The paper rejects this variant: a layer that computes for a shorter time than the next layer's broadcast takes
    hides only part of it.
    """

    parameters_kind, gradients_kind = NextBroadcasts, whole.Reduction
