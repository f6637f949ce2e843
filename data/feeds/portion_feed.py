"""A feed whose batches are portions of a larger batch, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from scaffe.data.feeds.feed import Feed

Open = Callable[[Iterator[np.ndarray], int], Feed]
"""Opens a feed of (visits of each batch, samples in a batch)."""


class PortionFeed:
    """Gives a data layer the portion that was chosen last.

    A portion that follows the last one comes from the same readers, which have prefetched it. Portions are cached up to
    ``cache_bytes``, so that the next pass over the same batch need not read them. A portion has the same random numbers
    in every pass.

    Args:
        open_feed: opens a feed anywhere.
        n_images: samples in a portion that is not the last, for ``shapes`` before one has been chosen.
        cache_bytes: size of the cache.

    Attributes:
        n_images: as given.
        n_records: of the source; 0 if that is not known.
        n_batches, batch_bytes: portions that readers hold at a time, besides what is kept, and the bytes of each.
    """

    def __init__(self, open_feed: Open, n_images: int, cache_bytes: int) -> None:
        self._open, self._cache_bytes = open_feed, cache_bytes
        self.n_images = n_images
        self._feed: Feed | None = None
        self._place = (0, n_images)  # the portion that is asked for: first visit, samples
        self._following = (-1, 0)  # what the open feed gives next
        self._kept: dict[tuple[int, int], tuple[np.ndarray, ...]] = {}
        self._kept_bytes = 0
        self._batch = (-1, 0)
        probe = open_feed(iter(()), n_images)
        self._row_shapes = [shape[1:] for shape in probe.shapes]
        self.n_records, self.n_batches, self.batch_bytes = probe.n_records, probe.n_batches, probe.batch_bytes
        probe.close()

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the tops with the portion that was chosen last."""
        return [(self._place[1], *shape) for shape in self._row_shapes]

    def choose(self, first: int, n_images: int, batch: tuple[int, int]) -> None:
        """Choose the portion that ``next`` returns.

        Args:
            first: first visit of the portion.
            n_images: samples in it.
            batch: the batch's first visit, and the one after its last; portions of another batch leave the cache.
        """
        self._place = (first, n_images)
        if batch != self._batch:
            self._batch, self._kept, self._kept_bytes = batch, {}, 0

    def next(self) -> tuple[np.ndarray, ...]:
        """The portion's arrays, as ``Feed.next`` gives a batch's. Raises DataError."""
        if self._place in self._kept:
            return self._kept[self._place]
        if self._feed is None or self._following != self._place:
            self._reopen()
        first, n_images = self._place
        arrays = self._feed.next() if self._feed is not None else ()
        self._following = (first + n_images, n_images)
        n_bytes = sum(array.nbytes for array in arrays)
        if self._kept_bytes + n_bytes <= self._cache_bytes:
            self._kept[self._place] = arrays = tuple(array.copy() for array in arrays)
            self._kept_bytes += n_bytes
        return arrays

    def close(self) -> None:
        """End the readers. May be called twice."""
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _reopen(self) -> None:
        """Open the source again, at the portion: readers go on with the portions of the same length that follow."""
        self.close()
        first, n_images = self._place
        starts = range(first, max(self._batch[1] - n_images, first) + 1, n_images)
        self._feed = self._open((start + np.arange(n_images, dtype=np.int64) for start in starts), n_images)
