"""Feeds of images and labels, as Caffe's Data and ImageData layers give them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from scaffe.data.feeds.feed import Allocate, Feed, PixelDevice, Plan, ReaderOptions, Tolerance, prefetcher
from scaffe.data.feeds.files_on_device import CHANNELS, FilesOnDevice
from scaffe.data.feeds.pixel_batch import NotPixels, PixelBatch
from scaffe.data.feeds.prefetch import Maker, job_rows
from scaffe.data.order.share import Draws
from scaffe.data.records.transform import PixelChange, Transform
from scaffe.data.sources.source import FileSource, Run, Shape, Source
from scaffe.errors import DataError

FIRST_LOOKS = 9  # records that decide a net's input shape if bad records are tolerated: the first may be bad
FILES_LOOKED_AT = 32  # records, one of which must be a file that a device can decode
Job = tuple[np.ndarray, np.ndarray]  # record numbers and their random numbers


def image_feed(source: Source, plan: Plan, transform: Transform, depth: int = 4,
               options: ReaderOptions = ReaderOptions()) -> Feed:  # noqa: B008 - frozen
    """Make a feed of images and labels.

    A batch takes its image size from its first record, as in Caffe. Sizes may differ between batches only if each batch
    has one image.

    Args:
        source: samples by record number.
        plan: which samples make up the batches.
        transform: applied to each sample.
        depth: batches prefetched.
        options: how to read.

    Returns:
        A feed with two tops: images (n, channels, height, width) and labels (n,).

    Raises:
        DataError: the first record cannot be read or does not fit the transformation, or batches do not fit into
            memory.
    """
    reader = _Reader(source, transform, options)
    n_looked_at = min(FIRST_LOOKS, source.n_records) if options.n_bad_allowed else 1
    shape = reader.shape = reader.usual_shape(plan.order.records(np.arange(n_looked_at)))
    device, n = reader.decode_on(options), plan.batch_elems
    draws, order = Draws(plan.seed, transform.draws_per_visit), plan.order
    jobs = ((order.records(visits), draws.take(visits)) for visits in plan.visits)
    maker = Maker(reader.fill, job_rows, reader.begin, reader.finish)
    readers = prefetcher(jobs, maker,
                         lambda allocate: image_batch(n, shape, allocate, reader.change is not None, device),
                         [(n, *shape)], depth, options)
    return Feed([(n, *shape), (n,)], readers, source.close, source.n_records, reader.change, device, options.on_host)


def image_batch(n: int, shape: Shape, allocate: Allocate, gives_pixels: bool = False,
                device: PixelDevice | None = None) -> PixelBatch:
    """The buffer of a batch of n images of a shape (channels, height, width)."""
    batch = PixelBatch(n, allocate, gives_pixels, device)
    batch.take_shape(_storage(n, shape))
    return batch


class _Reader:
    """Makes batches: reads runs and transforms each into its place in the batch. Threads share one object.

    Attributes:
        shape: (channels, height, width) of the feed's images.
        change: what is left to do to pixels that a batch is given as; None: batches are floats.
    """

    def __init__(self, source: Source, transform: Transform, options: ReaderOptions) -> None:
        self._source, self._transform = source, transform
        self._tolerance = Tolerance(options.n_bad_allowed, source.n_records, options.on_bad)
        self.shape: Shape = (0, 0, 0)
        self.change: PixelChange | None = None
        self._gives_pixels, self._n_channels = options.gives_pixels, 0
        self._files: FilesOnDevice | None = None

    def decode_on(self, options: ReaderOptions) -> PixelDevice | None:
        """Decode on the options' device; None, with a line that says why, where batches cannot be made there."""
        if options.device is None:
            return None
        if self.change is not None and self._n_channels == CHANNELS and isinstance(self._source, FileSource):
            self._files = FilesOnDevice(self._source, self._transform, options.device)
            if self._files.any_of(np.arange(min(FILES_LOOKED_AT, self._source.n_records))):
                return options.device
            self._files = None
        if options.on_host is not None:
            options.on_host("its batches are not made of plain JPEG files in colour, cropped and not resized"
                            if options.gives_pixels else "it reads its batches in portions")
        return None

    def usual_shape(self, records: np.ndarray) -> Shape:
        """The shape that most of these records have after the transformation; in a tie, the feed's own.

        Raises:
            DataError: more records are bad than are tolerated.
        """
        shapes: Counter[Shape] = Counter()
        for record in records.tolist():
            try:
                shapes[self._shape_of(record)] += 1
            except DataError as error:
                self._tolerance.pass_over(record, error)
        if not shapes:
            return self.usual_shape((records[-1:] + 1) % self._source.n_records)
        return max(shapes, key=lambda shape: (shapes[shape], shape == self.shape))

    def _shape_of(self, record: int) -> Shape:
        run = next(iter(self._source.read(np.array([record]))))
        shape = self._out_shape(run.shape, record)
        if self._gives_pixels and self.change is None and run.pixels.dtype == np.uint8:
            self.change, self._n_channels = self._transform.change(run.shape), run.shape[0]
        return shape

    def begin(self, job: Job, batch: PixelBatch) -> None:
        """Give the batch the feed's own shape and type, which nearly all batches have."""
        if len(batch.labels) > 1:
            batch.holds_pixels = self.change is not None
            batch.take_shape(_storage(len(batch.labels), self.shape))

    def fill(self, job: Job, batch: PixelBatch, rows: slice) -> None:
        """Make these samples of a batch. Raises DataError or NotPixels where they do not suit ``begin``'s shape."""
        records, draws = job
        if len(batch.labels) == 1:
            self._fill_whole(records, draws, batch)
        else:
            self._fill_from(records[rows], draws[rows], batch, rows.start, takes_shape=False)

    def finish(self, job: Job, batch: PixelBatch, error: BaseException | None) -> None:
        """Make the batch again as a whole if one of its samples does not suit: it may have another shape."""
        if isinstance(error, DataError | NotPixels) and len(batch.labels) > 1:
            self._fill_whole(*job, batch)
        elif error is not None:
            raise error

    def _fill_whole(self, records: np.ndarray, draws: np.ndarray, batch: PixelBatch) -> None:
        """Make a batch of the shape of its first sample, of floats if not all samples are pixels."""
        batch.holds_pixels = self.change is not None
        try:
            self._fill(records, draws, batch)
        except NotPixels:
            batch.holds_pixels = False
            self._fill(records, draws, batch)

    def _fill(self, records: np.ndarray, draws: np.ndarray, batch: PixelBatch) -> None:
        """Make a batch. If a record is bad and that is tolerated, make it again, record by record."""
        try:
            self._fill_from(records, draws, batch, 0, takes_shape=True)
        except DataError:
            if not self._tolerance.n_allowed:
                raise
            self._fill_one_by_one(records, draws, batch)

    def _fill_one_by_one(self, records: np.ndarray, draws: np.ndarray, batch: PixelBatch) -> None:
        usual = self.usual_shape(records) if len(records) > 1 else None
        if usual:
            batch.take_shape(_storage(len(records), usual))
        for i, wanted in enumerate(records):
            record = int(wanted)
            while True:
                try:
                    self._fill_from(np.array([record]), draws[i:i + 1], batch, i, takes_shape=not usual and i == 0)
                    break
                except DataError as error:
                    record = self._next_after_bad(record, error)

    def _fill_from(self, records: np.ndarray, draws: np.ndarray, batch: PixelBatch, place: int,
                   takes_shape: bool) -> None:
        """Write the samples of these records from ``place`` on; ``takes_shape``: the first sets its shape."""
        if self._files is None or not batch.holds_pixels:
            self._fill_on_host(records, draws, batch, place, takes_shape)
            return
        for part in self._files.fill(records, draws, batch, place, takes_shape):
            self._fill_on_host(records[part], draws[part], batch, place + part.start, takes_shape and part.start == 0)
            batch.upload(slice(place + part.start, place + part.stop))

    def _fill_on_host(self, records: np.ndarray, draws: np.ndarray, batch: PixelBatch, place: int,
                      takes_shape: bool) -> None:
        done = 0
        for run in self._source.read(records):
            n, at = len(run.starts), place + done
            shape = self._out_shape(run.shape, int(records[done]))
            if takes_shape and done == 0:
                batch.take_shape(_storage(len(batch.labels), shape))
            self._check(batch, shape, int(records[done]))
            self._write(run, draws[done:done + n], batch, slice(at, at + n))
            batch.labels[at:at + n] = run.labels
            done += n

    def _write(self, run: Run, draws: np.ndarray, batch: PixelBatch, place: slice) -> None:
        """Write a run's samples to their place in the batch."""
        if not batch.holds_pixels or batch.places is None:
            self._transform.apply(run, draws, batch.images[place])
        elif run.pixels.dtype == np.uint8 and run.shape[0] == self._n_channels:
            self._transform.gather(run, draws, batch.images[place], batch.places[place])
        else:
            raise NotPixels

    def _check(self, batch: PixelBatch, shape: Shape, record: int) -> None:
        if batch.images.shape != _storage(len(batch.labels), shape):
            others = _by([batch.images.shape[axis] for axis in (3, 1, 2)])
            raise DataError(f"{self._source.name_of(record)} is {_by(shape)}, the batch's first image is {others}; "
                            "give crop_size, or one image a batch")

    def _out_shape(self, shape: Shape, record: int) -> Shape:
        try:
            return self._transform.out_shape(shape)
        except DataError as error:
            raise DataError(f"{self._source.name_of(record)}: {error}") from None

    def _next_after_bad(self, record: int, error: DataError) -> int:
        """Count a bad record and return the one to try instead. Raises DataError if too many are bad."""
        self._tolerance.pass_over(record, error)
        return (record + 1) % self._source.n_records


def _storage(n: int, shape: Shape) -> tuple[int, ...]:
    """The storage shape (n, height, width, channels) of n images."""
    channels, height, width = shape
    return n, height, width, channels


def _by(shape: Sequence[int]) -> str:
    return " x ".join(str(n) for n in shape)
