"""A feed: the batches of one data layer on one rank, made ahead by reader threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from scaffe.data.feeds.prefetch import Prefetcher

Allocate = Callable[[int], np.ndarray]  # n_elems -> flat float32 memory


def plain_memory(n_elems: int) -> np.ndarray:
    """NumPy's own memory, for feeds whose batches need not lie anywhere special."""
    return np.empty(n_elems, np.float32)


class Order(Protocol):
    """Turns visits into record numbers (``in_order.InOrder``, ``shuffle.Shuffled``)."""

    n_records: int

    def records(self, visits: np.ndarray) -> np.ndarray:
        """Record numbers of these visits, int64; visits ascend from call to call."""


@dataclass(frozen=True)
class Plan:
    """Which batches a feed gives.

    Attributes:
        visits: int64 arrays, one a batch, from ``visits.visits_in_training`` or ``visits.visits_in_tests``.
        batch_elems: samples in each of them.
        order: visits to records.
        seed: uint32, of the crops and mirrorings; the same on every rank.
    """

    visits: Iterator[np.ndarray]
    batch_elems: int
    order: Order
    seed: int = 0


@dataclass(frozen=True)
class ReaderOptions:
    """How a feed reads.

    Attributes:
        n_threads: reader threads; 0 reads in the caller's thread when asked.
        allocate: gives flat float32 memory for batches (pinned memory, for a GPU); None is NumPy's.
        n_bad_allowed: records that may be unreadable; each is replaced by the next good one.
        on_bad: called with one line for each bad record passed over.
    """

    n_threads: int = 1
    allocate: Allocate | None = None
    n_bad_allowed: int = 0
    on_bad: Callable[[str], None] | None = None


class Slot(Protocol):
    """One buffer of the ring."""

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The batch, one array a top, in storage order."""


class Feed:
    """Batch after batch for one data layer.

    Attributes:
        shapes: logical shapes of the tops; images are (n, channels, height, width).

    Args:
        shapes: the same.
        prefetcher: fills slots.
        close: called after the readers have ended.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], prefetcher: Prefetcher[Any, Any],
                 close: Callable[[], None]) -> None:
        self.shapes = list(shapes)
        self._prefetcher, self._close = prefetcher, close

    def next(self) -> tuple[np.ndarray, ...]:
        """The next batch: one float32 array a top in storage order, valid until the next call.

        Images are (n, height, width, channels); their shape may differ from ``shapes`` where a batch has one image.

        Raises:
            DataError: a record cannot be read or does not fit; nothing more can be had from the feed then.
        """
        slot: Slot = self._prefetcher.next()
        return slot.arrays

    def close(self) -> None:
        """End the reader threads. May be called twice."""
        self._prefetcher.close()
        self._close()
