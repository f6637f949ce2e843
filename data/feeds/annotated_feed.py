"""Feeds of images and the objects in them, as the AnnotatedData layer of SSD's fork of Caffe gives them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

import numpy as np

from scaffe.data.augment.objects import COLUMNS, Objects
from scaffe.data.augment.pipeline import Pipeline, Shape
from scaffe.data.feeds.feed import Allocate, Feed, Plan, ReaderOptions, Tolerance, check_batches_fit, prefetcher
from scaffe.data.feeds.prefetch import Maker, job_rows
from scaffe.data.sources.annotated import Annotated, AnnotatedSource
from scaffe.errors import DataError

MOST_TRUTH = 300  # objects an item of MobileNet-YOLO's labels
BATCHES_A_SIZE = 10  # batches of one size, if there are several
FIRST_LOOKS = 9  # records that decide a net's input shape if bad records are tolerated: the first may be bad
NO_ROWS = np.zeros((0, COLUMNS), np.float32)
NO_OBJECT = -1.0  # fills the one row of a batch without objects
Job = tuple[np.ndarray, np.ndarray]  # record numbers and visits


@dataclass(frozen=True)
class TruthOptions:
    """Labels for YOLO's losses instead of SSD's rows (eric612/MobileNet-YOLO, annotated_data_layer.cpp).

    Attributes:
        with_difficult: objects marked difficult are among them.
    """

    with_difficult: bool = True


def annotated_feed(source: AnnotatedSource, plan: Plan, pipeline: Pipeline, depth: int = 4,
                   options: ReaderOptions = ReaderOptions(), n_tops: int = 2,  # noqa: B008 - frozen
                   kind_given: bool = False, truth: TruthOptions | None = None, global_batch: int = 1) -> Feed:
    """Make a feed of images and objects.

    Each image's random numbers come from the plan's seed and the image's visit, so that they are the same on any number
    of ranks and threads.

    Args:
        source: records by number.
        plan: which of them make up the batches.
        pipeline: applied to each.
        depth: batches prefetched.
        options: how to read. A bad record that is tolerated is replaced by the next good one.
        n_tops: 2, or 1 for the images alone.
        kind_given: the layer says that records have objects, whatever they say themselves.
        truth: labels are (n, 1, 300, 5): class from 0, centre x and y, width, height; then zeros. None: SSD's rows.
        global_batch: samples in a batch of all ranks; of several sizes each is drawn for ten such batches.

    Returns:
        A feed with images (n, channels, height, width) and objects (1, 1, rows, 8), a row an object: item in the batch,
        label, instance, xmin, ymin, xmax, ymax, difficult; one row of -1 without objects. If the first record does not
        say that it has objects, labels (n,) take their place.

    Raises:
        DataError: the first record cannot be read or does not fit the pipeline, or batches do not fit into memory.
    """
    reader = _Reader(source, plan, pipeline, options, n_tops, truth, global_batch)
    looks = min(FIRST_LOOKS, source.n_records) if options.n_bad_allowed else 1
    shape = reader.look(plan.order.records(np.arange(looks)), kind_given)
    n = plan.batch_elems
    if pipeline.fits_one_image and n > 1:
        raise DataError(f"FIT_SMALL_SIZE takes one image a batch, or a crop; got batches of {n}")
    jobs = ((plan.order.records(visits), visits) for visits in plan.visits)
    readers = prefetcher(jobs, Maker(reader.fill, job_rows, reader.begin, reader.finish),
                         lambda allocate: _Batch(n, shape, allocate, n_tops, reader.has_objects, truth is not None),
                         [(n, *shape)], depth, options)
    rows = (n, 1, MOST_TRUTH, 5) if truth else (1, 1, 1, COLUMNS)
    labels = rows if reader.has_objects else (n,)
    return Feed([(n, *shape), labels][:n_tops], readers, source.close, source.n_records)


def own_numbers(seed: int, visit: int) -> np.random.Generator:
    """The random numbers of one visit: Philox, a counter with seed and visit as its key (Salmon et al. 2011)."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, visit], np.uint64)))


class _Batch:
    """The buffer of one batch: images float32 (n, height, width, channels), and rows of objects, or labels (n,)."""

    def __init__(self, n: int, shape: Shape, allocate: Allocate, n_tops: int, has_objects: bool,
                 has_truth: bool) -> None:
        self.n, self._allocate, self._n_tops = n, allocate, n_tops
        self.objects: list[np.ndarray] = []  # of each sample, float32 (k, 8)
        self._memory, self._rows = allocate(n * prod(shape)), allocate(COLUMNS)
        self.labels = self._rows.reshape(1, 1, COLUMNS, 1) if has_objects else allocate(n)
        if has_objects and has_truth:
            self.labels = allocate(n * MOST_TRUTH * 5).reshape(n, MOST_TRUTH, 5, 1)
        self.take_shape((*shape[1:], shape[0]))

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Images, and objects in storage order (1, rows, 8, 1), or labels."""
        return (self.images, self.labels)[:self._n_tops]

    def take_shape(self, shape: tuple[int, ...]) -> None:
        """Change the images' shape to (height, width, channels); allocates only if they need more memory."""
        n_elems = self.n * prod(shape)
        if n_elems > self._memory.size:
            check_batches_fit(1, [(self.n, *shape)])
            self._memory = self._allocate(n_elems)
        self.images = self._memory[:n_elems].reshape(self.n, *shape)

    def take_rows(self, rows: np.ndarray) -> None:
        """Take the rows (k, 8) of all objects; none is one row of -1."""
        if not len(rows):
            rows = np.full((1, COLUMNS), NO_OBJECT, np.float32)
        if rows.size > self._rows.size:
            self._rows = self._allocate(2 * rows.size)
        self.labels = self._rows[:rows.size].reshape(1, len(rows), COLUMNS, 1)
        self.labels[0, :, :, 0] = rows


class _Reader:
    """Makes batches. Threads share one object.

    Attributes:
        has_objects: whether batches have objects, or labels of whole images.
    """

    def __init__(self, source: AnnotatedSource, plan: Plan, pipeline: Pipeline, options: ReaderOptions,
                 n_tops: int, truth: TruthOptions | None, global_batch: int) -> None:
        self._source, self._seed, self._pipeline, self._n_tops = source, plan.seed, pipeline, n_tops
        self._truth, self._visits_a_size = truth, BATCHES_A_SIZE * max(global_batch, 1)
        self._tolerance = Tolerance(options.n_bad_allowed, source.n_records, options.on_bad)
        self.has_objects = True

    def look(self, records: np.ndarray, kind_given: bool) -> Shape:
        """The shape that most of these records have in the end; sets ``has_objects`` by the first good one.

        Raises:
            DataError: more records are bad than are tolerated.
        """
        shapes: Counter[Shape] = Counter()
        for record in records.tolist():
            try:
                found = self._source.read(record)
                shapes[self._out_shape(record, found)] += 1
            except DataError as error:
                self._tolerance.pass_over(record, error)
                continue
            if shapes.total() == 1:
                self.has_objects = found.has_objects or kind_given
        if not shapes:
            return self.look((records[-1:] + 1) % self._source.n_records, kind_given)
        return shapes.most_common(1)[0][0]

    def begin(self, job: Job, batch: _Batch) -> None:
        """Give the batch the size that was drawn for it."""
        batch.objects = [NO_ROWS] * batch.n
        if batch.n > 1 and self._pipeline.n_sizes > 1:
            batch.take_shape((*self._pipeline.extent(self._size_of(job[1])), batch.images.shape[-1]))

    def fill(self, job: Job, batch: _Batch, rows: slice) -> None:
        """Make these samples of a batch."""
        records, visits = job
        size = self._size_of(visits)
        for item in range(rows.start, rows.stop):
            found, image, objects = self._good(int(records[item]), int(visits[item]), batch, size)
            batch.images[item] = image
            if not self.has_objects:
                batch.labels[item] = found.label
            elif self._truth:
                batch.labels[item, :, :, 0] = objects.truth(MOST_TRUTH, self._truth.with_difficult)
            else:
                batch.objects[item] = objects.rows(item)

    def finish(self, job: Job, batch: _Batch, error: BaseException | None) -> None:
        """Put the objects of all samples together."""
        if error is not None:
            raise error
        if self.has_objects and not self._truth:
            batch.take_rows(np.concatenate(batch.objects))

    def _size_of(self, visits: np.ndarray) -> int:
        """The number of the size that a batch's images get: the same on all ranks."""
        if self._pipeline.n_sizes < 2 or not len(visits):
            return 0
        key = np.array([self._seed, int(visits[0]) // self._visits_a_size], np.uint64)
        return self._pipeline.draw_size(np.random.Generator(np.random.Philox(key=key, counter=1 << 64)))

    def _good(self, record: int, visit: int, batch: _Batch, size: int) -> tuple[Annotated, np.ndarray, Objects]:
        """A record, its image and objects; if it is bad and that is tolerated, the next good one."""
        while True:
            try:
                found = self._source.read(record)
                return found, *self._made(record, found, visit, batch, size)
            except DataError as error:
                self._tolerance.pass_over(record, error)
                record = (record + 1) % self._source.n_records

    def _made(self, record: int, found: Annotated, visit: int, batch: _Batch,
              size: int) -> tuple[np.ndarray, Objects]:
        """A record's image and objects after the pipeline. Raises DataError if they do not fit it, or the batch."""
        try:
            image, objects = self._pipeline.apply(found.image, found.objects, own_numbers(self._seed, visit), size)
        except DataError as error:
            raise DataError(f"{self._source.name_of(record)}: {error}") from None
        if batch.n == 1:
            batch.take_shape(image.shape)
        if image.shape != batch.images.shape[1:]:
            came, wanted = (" x ".join(map(str, shape)) for shape in (image.shape, batch.images.shape[1:]))
            raise DataError(f"{self._source.name_of(record)} has {came} rows, columns and channels, the others "
                            f"{wanted}; give resize_param, or one image a batch")
        return image, objects

    def _out_shape(self, record: int, found: Annotated) -> Shape:
        height, width, channels = found.image.shape
        try:
            return self._pipeline.out_shape((channels, height, width))
        except DataError as error:
            raise DataError(f"{self._source.name_of(record)}: {error}") from None
