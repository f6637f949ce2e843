"""Tables that are pushed, or pulled, each in the steps of its own layers, so that a memory plan may move them."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.training.strategies.buckets import Bucket
from scaffe.training.strategies.replica import Replica
from scaffe.training.survival.holders import goes_on


class EarlyTables:
    """Which they are.

    Args:
        replica: what is trained.
        buckets: a table each.

    Attributes:
        numbers: of all tables, by the first layer.
        taken: of those that are early.
    """

    def __init__(self, replica: Replica, buckets: Sequence[Bucket]) -> None:
        self._replica, self._buckets = replica, buckets
        self.numbers = {bucket.first_layer: number for number, bucket in enumerate(buckets)}
        self.taken: set[int] = set()

    def able(self) -> Sequence[Bucket]:
        """All, in iterations of one pass that clip nothing, where ranks hold whole nets and none goes on without
        another; else none."""
        replica = self._replica
        clips = replica.updater.param.clip_gradients >= 0
        needs_all = clips or replica.iter_size > 1 or replica.within.acts or goes_on(replica.options)
        return () if needs_all else self._buckets

    def take(self, buckets: Sequence[Bucket]) -> None:
        """These are early from now on."""
        self.taken = {self.numbers[bucket.first_layer] for bucket in buckets}
