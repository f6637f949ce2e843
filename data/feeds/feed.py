"""A feed: the batches of one data layer on one rank, prefetched by reader threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from scaffe import forking
from scaffe.data.feeds.prefetch import Maker, Prefetcher
from scaffe.data.records.transform import PixelChange
from scaffe.errors import DataError

Allocate = Callable[[int], np.ndarray]  # n_elems -> flat float32 memory


def plain_memory(n_elems: int) -> np.ndarray:
    """Ordinary memory for a batch: float32 (n_elems,)."""
    return np.empty(n_elems, np.float32)


class Order(Protocol):
    """Turns visits into record numbers (``order.in_order.InOrder``, ``order.shuffle.Passes``).

    A visit is a place in the order in which a single process would read (see ``order.visits``).

    Attributes:
        n_records: number of records of the source.
    """

    n_records: int

    def records(self, visits: np.ndarray) -> np.ndarray:
        """Record numbers, int64, of these visits, which ascend from call to call."""


@dataclass(frozen=True)
class Plan:
    """Which samples make up a feed's batches.

    Attributes:
        visits: int64 (batch_elems,) arrays, one for each batch, from ``order.share.Share.visits``.
        batch_elems: samples in a batch of this rank.
        order: turns visits into record numbers.
        seed: uint32, of the random numbers of crops and mirroring; the same on every rank.
    """

    visits: Iterator[np.ndarray]
    batch_elems: int
    order: Order
    seed: int = 0


class PixelDevice(Protocol):
    """A device's memory for pixels, and its decoder of plain JPEG files. Several threads may call it at once.

    Attributes:
        first_error: what the decoder raised first, in one line; empty while it has raised nothing.
    """

    first_error: str

    def empty(self, n_bytes: int) -> Any:
        """Flat uint8 memory on the device."""

    def decode(self, files: Sequence[np.ndarray], sizes: np.ndarray, places: np.ndarray, rows: np.ndarray,
               out: Any) -> np.ndarray:
        """Decode files and write a part of each image to a batch. Returns when it has been written.

        Args:
            files: plain JPEG files, uint8, 1-D.
            sizes: int64 (n, 2), height and width that the images must have.
            places: int64 (n, 2 or more), first row and column of each part.
            rows: int64 (n,), the sample of the batch that each becomes.
            out: uint8 (samples, height, width, 3), on the device; blue first.

        Returns:
            bool (n,), which files could be decoded.
        """

    def upload(self, pixels: np.ndarray, out: Any) -> None:
        """Copy uint8 pixels from the host to ``out``, contiguous and of the same shape. Returns when they are there."""


@dataclass(frozen=True)
class ReaderOptions:
    """How a feed reads.

    Attributes:
        n_threads: reader threads; 0 makes each batch in the caller's thread when it is asked for.
        most_threads: if above 0, readers are added up to this number where the consumer waits for data, from
            ``n_threads`` on.
        allocate: called with a number of elements, returns flat float32 memory for batches (pinned memory for a GPU);
            None takes NumPy's.
        n_bad_allowed: how many bad records are tolerated; each is replaced by the next good one.
        on_bad: called with one line for each bad record that is tolerated.
        gives_pixels: whether a batch may be cropped pixels, a byte each, which ``Feed.change`` then makes floats of.
        scaled_decode: decode JPEG files that a layer makes smaller at a half, a fourth or an eighth of their size.
        on_choice: called once with a sentence that says how many readers were chosen.
        device: where image files are to be decoded, and batches of pixels then lie; None: on the host.
        on_host: called with a line that says why files are decoded on the host though there is a ``device``.
    """

    n_threads: int = 1
    most_threads: int = 0
    allocate: Allocate | None = None
    n_bad_allowed: int = 0
    on_bad: Callable[[str], None] | None = None
    gives_pixels: bool = False
    scaled_decode: bool = False
    on_choice: Callable[[str], None] | None = None
    device: PixelDevice | None = None
    on_host: Callable[[str], None] | None = None


class Slot(Protocol):
    """The buffer of one batch."""

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The batch: one float32 array for each top, in storage order (images channels-last)."""


class Feed:
    """Gives one data layer its batches.

    Args:
        shapes: logical shapes of the tops; images are (n, channels, height, width).
        prefetcher: makes the batches.
        close: called when the reader threads have ended.
        n_records: how many samples the source has; 0 if one pass over them means nothing.
        change: how to convert pixels to floats; None: all batches are floats.
        device: where batches of pixels lie; None: on the host.
        on_device_error: called once with what the device's decoder has raised.

    Attributes:
        shapes, n_records, change: as given.
        n_batches: batches held at a time: the prefetched ones, and the one in use.
        batch_bytes: bytes of a batch at first; one with longer samples, or with floats for pixels, takes more.
        device_bytes: of all batches that are held, on a device.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], prefetcher: Prefetcher[Any, Any],
                 close: Callable[[], None], n_records: int = 0, change: PixelChange | None = None,
                 device: PixelDevice | None = None, on_device_error: Callable[[str], None] | None = None) -> None:
        self.shapes, self.n_records, self.change = list(shapes), n_records, change
        self._prefetcher, self._close = prefetcher, close
        self.n_batches = len(prefetcher.slots)
        self.batch_bytes = sum(array.nbytes for array in prefetcher.slots[0].arrays)
        self._device, self._on_device_error = device, on_device_error
        self.device_bytes = self.n_batches * prefetcher.slots[0].arrays[0].nbytes if device is not None else 0

    def next(self) -> tuple[np.ndarray, ...]:
        """The next batch.

        Returns:
            One float32 array for each top, valid until the next call. Images are in storage order,
            (n, height, width, channels). With one image a batch, its size may differ from ``shapes``. Where ``change``
            is given, images may be uint8; then a third array, int32 (n, 3), has each crop's first row and column, and 1
            for an image that is to be mirrored. uint8 images lie in the memory of the ``device`` if the feed has one.

        Raises:
            DataError: a record cannot be read or does not fit. The feed gives no more batches then.
        """
        slot: Slot = self._prefetcher.next()
        if self._device is not None and self._device.first_error and self._on_device_error is not None:
            self._on_device_error(self._device.first_error)
            self._on_device_error = None
        return slot.arrays

    def close(self) -> None:
        """End the reader threads. May be called twice."""
        self._prefetcher.close()
        self._close()


ITEM_BYTES = 4  # float32
MOST_ROWS = 32  # samples of a piece; small enough to stay in a core's cache and to bring the first batch soon
PIECE_BYTES = 1 << 18  # a piece of small samples has more of them, since each piece costs some 0.1 ms of Python


def prefetcher(jobs: Iterator[Any], maker: Maker[Any, Any], new_slot: Callable[[Allocate], Any],
               shapes: Sequence[tuple[int, ...]], depth: int, options: ReaderOptions) -> Prefetcher[Any, Any]:
    """Make a feed's prefetcher and the slots of its batches.

    Args:
        jobs: what batches are made of.
        maker: makes them.
        new_slot: makes the buffer of a batch, in memory that it allocates so.
        shapes: of a batch's float32 arrays, (samples, ...).
        depth: batches prefetched.
        options: how to read.

    Raises:
        DataError: the batches do not fit into memory.
    """
    n_slots = batches_held(depth, options)
    check_batches_fit(n_slots, shapes)
    slots = [new_slot(options.allocate or plain_memory) for _ in range(n_slots)]
    rows = piece_rows(shapes[0], depth, max(options.n_threads, options.most_threads))
    return Prefetcher(jobs, maker, slots, options.n_threads, rows, options.most_threads, options.on_choice)


def batches_held(depth: int, options: ReaderOptions) -> int:
    """Batches that a feed holds at a time: those made ahead, and the one in use."""
    return depth + 1 if options.n_threads else 1


def piece_rows(shape: tuple[int, ...], depth: int, n_threads: int) -> int:
    """Samples of a piece: few enough that all threads find work in the batches made ahead.

    Args:
        shape: of a batch's first array, (samples, ...).
        depth: batches made ahead.
        n_threads: the most threads there may be.
    """
    most = max(MOST_ROWS, PIECE_BYTES // (ITEM_BYTES * max(prod(shape[1:]), 1)))
    return max(1, min(most, shape[0] * depth // max(2 * n_threads, 1)))


def check_batches_fit(n_batches: int, shapes: Sequence[tuple[int, ...]]) -> None:
    """Check that batches fit into the machine's physical memory.

    Args:
        n_batches: batches held at a time.
        shapes: shapes of the float32 arrays of one batch.

    Raises:
        DataError: they need more than all of it.
    """
    n_bytes = n_batches * ITEM_BYTES * sum(prod(shape) for shape in shapes)
    there_are = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if n_bytes > there_are:
        what = " and ".join(" x ".join(map(str, shape)) for shape in shapes)
        raise DataError(f"{n_batches} batches of {what} floats take {n_bytes >> 20} MB, the machine has "
                        f"{there_are >> 20} MB; lower batch_size or prefetch")


class Tolerance:
    """Counts bad records, each once, however many threads and epochs meet it.

    Args:
        n_allowed: bad records that are tolerated; 0 tolerates none.
        n_records: number of records of the source. At least one must be good, whatever ``n_allowed`` is.
        on_bad: called with one line for each bad record that is tolerated.
    """

    def __init__(self, n_allowed: int, n_records: int, on_bad: Callable[[str], None] | None = None) -> None:
        self.n_allowed, self._most, self._on_bad = n_allowed, min(n_allowed, n_records - 1), on_bad
        self._bad: set[int] = set()
        self._lock = forking.Lock()

    def pass_over(self, record: int, error: DataError) -> None:
        """Count a bad record; ``error`` says what is wrong with it. Raises DataError if there are too many now."""
        with self._lock:
            if record in self._bad:
                return
            if not self.n_allowed:
                raise error
            if len(self._bad) == self._most:
                raise DataError(f"{error}; {self._most + 1} records are bad, at most {self._most} may be") from error
            self._bad.add(record)
        if self._on_bad:
            self._on_bad(str(error))
