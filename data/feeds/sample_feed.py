"""Feeds whose samples are made one record at a time, with any number of arrays a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, Protocol

import numpy as np

from scaffe.data.feeds.feed import Allocate, Feed, Plan, ReaderOptions, Tolerance, check_batches_fit, prefetcher
from scaffe.data.feeds.parameters import Draw, batch_size_of, list_order, read_mean, read_mean_array
from scaffe.data.feeds.prefetch import Maker, job_rows
from scaffe.data.order.share import TRAIN, Draws, Share
from scaffe.data.records.pair_transform import PairOptions
from scaffe.data.records.transform import ClipTransform, TransformOptions
from scaffe.data.sources.image_pairs import Labels, PairList, PairSampler
from scaffe.data.sources.videos import ClipList, VideoClips
from scaffe.errors import DataError
from scaffe.proto.byte_text import path_of

Shapes = list[tuple[int, ...]]


class Sampler(Protocol):
    """Makes samples. Several threads may call it at once.

    Attributes:
        n_records: number of records.
        draws_per_visit: random numbers used for each sample.
    """

    n_records: int
    draws_per_visit: int

    def make(self, record: int, draws: np.ndarray) -> list[np.ndarray]:
        """Make one sample.

        Args:
            record: the record's number.
            draws: uint32 (draws_per_visit,), its random numbers.

        Returns:
            one array for each top, in storage order (channels last), without the batch's axis.

        Raises:
            DataError: the record is bad.
        """


def sample_feed(sampler: Sampler, plan: Plan, options: ReaderOptions, depth: int = 4) -> Feed:
    """Make a feed.

    The first record gives the samples' shapes. With one sample a batch, each batch has the shapes of its own.

    Args:
        sampler: makes the samples.
        plan: which samples make up the batches.
        options: how to read. A bad record that is tolerated is replaced by the next good one.
        depth: batches prefetched.

    Returns:
        a feed with one top for each array of a sample.

    Raises:
        DataError: no sample can be made to begin with, or batches do not fit into memory.
    """
    n, tolerance = plan.batch_elems, Tolerance(options.n_bad_allowed, sampler.n_records, options.on_bad)
    filler = _Filler(sampler, tolerance)
    first = filler.make_good(int(plan.order.records(np.zeros(1, np.int64))[0]),
                             np.zeros(sampler.draws_per_visit, np.uint32))
    shapes: Shapes = [array.shape for array in first]
    draws = Draws(plan.seed, sampler.draws_per_visit)
    jobs = ((plan.order.records(visits), draws.take(visits)) for visits in plan.visits)
    readers = prefetcher(jobs, Maker(filler.fill, job_rows), lambda allocate: _Batch(n, shapes, allocate),
                         [(n, *shape) for shape in shapes], depth, options)
    return Feed([_logical((n, *shape)) for shape in shapes], readers, lambda: None)


class _Batch:
    """The buffer of one batch: float32 arrays (n, *shape), one for each top."""

    def __init__(self, n: int, shapes: Sequence[tuple[int, ...]], allocate: Allocate) -> None:
        self._n, self._allocate = n, allocate
        self._memory = [allocate(n * prod(shape)) for shape in shapes]
        self.take_shapes(shapes)

    def take_shapes(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Change the samples' shapes; allocates only what needs more memory."""
        self.shapes = list(shapes)
        for i, shape in enumerate(shapes):
            if self._n * prod(shape) > self._memory[i].size:
                check_batches_fit(1, [(self._n, *shape)])
                self._memory[i] = self._allocate(self._n * prod(shape))
        self.arrays = tuple(flat[: self._n * prod(shape)].reshape(self._n, *shape)
                            for flat, shape in zip(self._memory, shapes, strict=True))


class _Filler:
    """Fills batches. Threads share one object."""

    def __init__(self, sampler: Sampler, tolerance: Tolerance) -> None:
        self._sampler, self._tolerance = sampler, tolerance

    def fill(self, job: tuple[np.ndarray, np.ndarray], batch: _Batch, rows: slice) -> None:
        """Make these samples of a batch."""
        records, draws = job
        for i in range(rows.start, rows.stop):
            sample = self.make_good(int(records[i]), draws[i], None if len(records) == 1 else batch)
            if len(records) == 1:
                batch.take_shapes([array.shape for array in sample])
            for target, array in zip(batch.arrays, sample, strict=True):
                target[i] = array

    def make_good(self, record: int, draws: np.ndarray, batch: _Batch | None = None) -> list[np.ndarray]:
        """The sample of this record or, if it is bad and that is tolerated, of the next good one."""
        while True:
            try:
                sample = self._sampler.make(record, draws)
                _check(sample, batch)
                return sample
            except DataError as error:
                self._tolerance.pass_over(record, error)
                record = (record + 1) % self._sampler.n_records


def _check(sample: list[np.ndarray], batch: _Batch | None) -> None:
    """Raise DataError if the sample does not have the shapes of its batch."""
    if batch is None:
        return
    for array, shape in zip(sample, batch.shapes, strict=True):
        if array.shape != shape:
            came, wanted = (" x ".join(map(str, s)) for s in (array.shape, shape))
            raise DataError(f"a sample is {came}, the first one is {wanted}; give a crop or a size, "
                            "or one sample a batch")


def _logical(storage: tuple[int, ...]) -> tuple[int, ...]:
    """The logical shape, (n, channels, ...), of arrays stored channels-last."""
    return (storage[0], storage[-1], *storage[1:-1]) if len(storage) >= 4 else storage


LABEL_TYPES = (Labels.NONE, Labels.NUMBER, Labels.IMAGE_FILE)  # ImageDataParameter.LabelType


def open_dense_image_data(param: Any, phase: int, share: Share, draw: Draw, options: ReaderOptions) -> Feed:
    """The feed of a DenseImageData layer; as in SegNet, it crops at random in testing too and has no use for mean_file.

    Raises:
        DataError: transform_param mirrors or crops, or an option or file does not fit.
    """
    data, transform = param.dense_image_data_param, param.transform_param
    if transform.mirror or transform.crop_size:
        raise DataError("DenseImageData mirrors and crops by dense_image_data_param; transform_param may do neither")
    if transform.HasField("mean_file") and transform.mean_value:
        raise DataError("transform_param takes mean_file or mean_value, not both")
    mean = read_mean(path_of(transform.mean_file)).transpose(1, 2, 0) if transform.HasField("mean_file") else None
    factor = data.label_divide_factor
    if factor < 1 or factor > 1 and (_crop(data) != (0, 0) or min(data.new_height, data.new_width) < factor):
        raise DataError(f"label_divide_factor {factor} goes with a new_height and new_width of at least as much, and "
                        "without a crop")
    pair = PairOptions(_crop(data), True, data.mirror, (), False, 0, transform.scale, tuple(transform.mean_value), mean,
                       factor)
    files = replace(_files(data, Labels.IMAGE_FILE), label_factor=factor)
    return _open(files, pair, data, phase, share, draw, options)


def open_image_seg_data(param: Any, phase: int, share: Share, draw: Draw, options: ReaderOptions) -> Feed:
    """The feed of an ImageSegData layer: images, labels and sizes.

    Raises:
        DataError: there is a mean file, which the layer does not take, or an option or file does not fit.
    """
    data, transform = param.image_data_param, param.transform_param
    if transform.HasField("mean_file"):
        raise DataError("ImageSegData takes mean_value, not mean_file")
    crop = _crop(transform)
    if transform.HasField("crop_size"):
        if crop != (0, 0):
            raise DataError("give crop_size, or crop_height and crop_width, not both")
        crop = (transform.crop_size, transform.crop_size)
    if crop == (0, 0) and any(factor != 1 for factor in transform.scale_factors):
        raise DataError("scale_factors go with a crop, which gives the images one size")
    pair = PairOptions(crop, phase == TRAIN, transform.mirror, tuple(transform.scale_factors), True, data.ignore_label,
                       transform.scale, tuple(transform.mean_value))
    files = _files(data, LABEL_TYPES[data.label_type], nearest=False, shows_size=True)
    return _open(files, pair, data, phase, share, draw, options)


def _files(data: Any, labels: Labels, **options: bool) -> PairList:
    """The files of a DenseImageDataParameter or ImageDataParameter message."""
    return PairList(path_of(data.source), labels, path_of(data.root_folder), data.new_height, data.new_width,
                    data.is_color, **options)


def _open(files: PairList, pair: PairOptions, data: Any, phase: int, share: Share, draw: Draw,
          options: ReaderOptions) -> Feed:
    sampler = PairSampler(files, pair)
    order = list_order(data, sampler.n_records, draw)
    n = batch_size_of(data)
    return sample_feed(sampler, Plan(share.visits(phase, n), share.batch_elems(phase, n), order, draw()), options)


def _crop(message: Any) -> tuple[int, int]:
    """crop_height and crop_width of a message. Raises DataError if only one of them is above 0."""
    crop = int(message.crop_height), int(message.crop_width)
    if (crop[0] > 0) != (crop[1] > 0):
        raise DataError(f"crop_height and crop_width go together, got {crop[0]} and {crop[1]}")
    return crop


def open_video_data(param: Any, phase: int, share: Share, draw: Draw, options: ReaderOptions) -> Feed:
    """The feed of a VideoData layer: clips (n, 3, frames, height, width) and, for a second top, their labels.

    Raises:
        DataError: an option or file does not fit.
    """
    data, message = param.video_data_param, param.transform_param
    if data.show_data:
        raise DataError("show_data opens windows on the screen, which VideoData does not do here")
    if data.use_multiple_label and not data.HasField("num_of_labels"):
        raise DataError("use_multiple_label goes with num_of_labels")
    clips = VideoClips(ClipList(
        path_of(data.source), path_of(data.root_folder), data.use_image, data.use_temporal_jitter, data.new_length,
        data.sampling_rate, data.max_sampling_rate if data.use_sampling_rate_jitter else 0, data.new_height,
        data.new_width, data.num_of_labels if data.use_multiple_label else 0, phase == TRAIN))
    transform = TransformOptions(message.scale, message.mirror, message.crop_size, tuple(message.mean_value),
                                 random_crop=phase == TRAIN)
    if message.HasField("mean_file"):
        transform = replace(transform, mean_image=read_mean_array(path_of(message.mean_file), 4))
    sampler = _ClipSampler(clips, ClipTransform(transform), len(param.top))
    order, n = list_order(data, clips.n_records, draw), batch_size_of(data)
    return sample_feed(sampler, Plan(share.visits(phase, n), share.batch_elems(phase, n), order, draw()), options)


class _ClipSampler:
    """Reads and transforms clips; see ``sample_feed.Sampler``."""

    def __init__(self, clips: VideoClips, transform: ClipTransform, n_tops: int) -> None:
        self._clips, self._transform, self._n_tops = clips, transform, n_tops
        self.n_records = clips.n_records
        self.draws_per_visit = clips.n_draws + transform.draws_per_visit

    def make(self, record: int, draws: np.ndarray) -> list[np.ndarray]:
        """One clip, float32 (frames, height, width, 3), and its label. Raises DataError if the clip is bad."""
        pixels = self._clips.read(record, draws)
        try:
            clip = self._transform.apply(pixels, draws[self._clips.n_draws:])
        except DataError as error:
            raise DataError(f"{self._clips.name_of(record)}: {error}") from None
        return [clip, self._clips.label(record)][: self._n_tops]
