"""EagerUpdate: an update within backward, bucket by bucket, which memory plans need."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scaffe.training.strategies.buckets import Bucket
from scaffe.training.updater import Updater


class EagerUpdate:
    """Updates some buckets right after their backward, instead of in ``apply``. The base class offers no buckets.

    Attributes:
        own_updaters: updaters beside the replica's, and before it in each iteration, whose histories a memory plan may
            move.
        refreshes_parameters: whether the strategy writes the buckets' parameters before each forward, so that a rank
            need not keep them.
        may_refresh_parameters: whether it does so before some forwards, and otherwise uses what the rank has.
    """

    own_updaters: Sequence[Updater] = ()
    refreshes_parameters = False
    may_refresh_parameters = False

    @property
    def updates_alone(self) -> bool:
        """Whether only the update reads the gradients, so that they need not all be in memory together."""
        return False

    def buckets(self) -> Sequence[Bucket]:
        """The buckets that may be updated so: no other gradients count in their update, and their sums have the bits
        that they have together with the rest."""
        return ()

    def take(self, buckets: Sequence[Bucket]) -> None:
        """Have ``update_in_backward`` called for some of ``buckets`` in every iteration from now on. Called by all
        ranks, before ``begin``."""

    def update_in_backward(self, bucket: Bucket, rate: float, iteration: int) -> None:
        """Sum a bucket's gradients, update it, and give all ranks its new parameters. Called right after its backward,
        by all ranks in the same order.

        Args:
            bucket: one that was taken, or some rows of it: then ``place`` is their interval.
            rate, iteration: as for ``apply``.
        """
        raise NotImplementedError

    def refresher(self, bucket: Bucket) -> Callable[[], None] | None:
        """Where parameters are refreshed: a function that writes a bucket's once more between its forward and its
        update, with the same values; None where the values may have changed by then."""
        return None
