"""The naive SC-OB, to compare with: only the next bucket's broadcast runs beside a layer."""

from __future__ import annotations

from scaffe.training.strategies import bucketed, whole
from scaffe.training.strategies.base import Replica, strategies
from scaffe.training.strategies.buckets import Bucket
from scaffe.training.strategies.composed import Composed
from scaffe.training.strategies.parts import Buckets


class NextBroadcasts(bucketed.Broadcasts):
    """While the layers of one bucket compute, the next bucket's broadcast is under way, and no other."""

    def __init__(self, replica: Replica, buckets: Buckets) -> None:
        super().__init__(replica, buckets)
        self._left: list[Bucket] = []

    def post(self) -> None:
        """Post the first bucket if parameters have changed."""
        if self.are_stale:
            self._left = list(self.buckets.all)
            self._post_next()
        self.are_stale = False

    def wait_for(self, layer_index: int) -> None:
        """Wait for the bucket that a layer begins, and post the one after it."""
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
    """Layer i+1's broadcast is posted when layer i begins (Awan et al., PPoPP'17, 4.2, the variant that the paper
    rejects: a layer that computes for less time than its successor's parameters travel hides only a part)."""

    parameters_kind, gradients_kind = NextBroadcasts, whole.Reduction
