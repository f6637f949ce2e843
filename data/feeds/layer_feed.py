"""Makes the feed of a data layer from its LayerParameter message; the trainer calls this for every data layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scaffe.data.feeds.feed import Feed, Plan, ReaderOptions
from scaffe.data.feeds.image_feed import image_feed
from scaffe.data.feeds.parameters import Draw, batch_size_of, colour_of, list_order, read_mean, transform_options
from scaffe.data.order.orders import InOrder
from scaffe.data.order.share import TEST, TRAIN, GivenVisits, Share
from scaffe.data.records.transform import Transform
from scaffe.errors import DataError
from scaffe.proto.byte_text import path_of

__all__ = ["TEST", "TRAIN", "GivenVisits", "ReaderOptions", "Share", "layer_batch_size", "open_layer_feed"]

MOST_PREFETCH = 1000


def open_layer_feed(param: Any, phase: int, share: Share, draw: Draw,
                    options: ReaderOptions = ReaderOptions()) -> Feed:  # noqa: B008 - frozen
    """Make the feed of a data layer: Data, ImageData, HDF5Data, WindowData, or a fork's.

    Args:
        param: the LayerParameter message.
        phase: TRAIN or TEST.
        share: this rank's part of the data.
        draw: returns the next raw number of the net's random stream; must return the same numbers on every rank. As
            many are taken as Caffe 1.0 takes here (Data: one for the thread's seed, and two more if the layer crops
            or mirrors at random).
        options: how to read.

    Returns:
        The feed; it must be closed.

    Raises:
        DataError: the source cannot be read, or the layer's parameters do not fit it.
    """
    kind = _kind_of(param)
    if options.device is not None and options.on_host is not None and not kind.on_device:
        options.on_host(f"layers of type {param.type} do nothing on a device")
    return kind.opener(param, phase, share, draw, options)


def layer_batch_size(param: Any) -> int:
    """The batch_size of a data layer, from its LayerParameter message. Raises DataError if it is not at least 1."""
    return batch_size_of(getattr(param, _kind_of(param).field))


def _kind_of(param: Any) -> _Kind:
    if param.type not in _KINDS:
        raise DataError(f"no feed for layers of type {param.type!r}; known: {', '.join(_KINDS)}")
    return _KINDS[param.type]


def _open_data(param: Any, phase: int, share: Share, draw: Draw, options: ReaderOptions) -> Feed:
    from scaffe.data.sources.database import open_database

    data, transform = param.data_param, Transform(transform_options(param.transform_param, phase))
    n = layer_batch_size(param)
    source = open_database(path_of(data.source), colour_of(param.transform_param))
    order = InOrder(source.n_records)
    plan = Plan(share.visits(phase, n), share.batch_elems(phase, n), order, _transform_seed(transform, draw))
    return image_feed(source, plan, transform, _prefetch(data), options)


def _prefetch(data: Any) -> int:
    """How many batches to prefetch, from a DataParameter message."""
    if data.prefetch > MOST_PREFETCH:
        raise DataError(f"prefetch {data.prefetch} is above {MOST_PREFETCH}, the most batches that are made ahead")
    return max(1, int(data.prefetch))


def _open_image_data(param: Any, phase: int, share: Share, draw: Draw, options: ReaderOptions) -> Feed:
    from scaffe.data.sources.image_list import ImageListSource

    data, transform = param.image_data_param, Transform(transform_options(param.transform_param, phase))
    n = layer_batch_size(param)
    source = ImageListSource(path_of(data.source), path_of(data.root_folder), data.new_height, data.new_width,
                             data.is_color, options.scaled_decode)
    if transform.draws_per_visit:
        draw()  # Caffe takes its numbers in this order
    order = list_order(data, source.n_records, draw)
    seed = _transform_seed(transform, draw, n_before=0)
    plan = Plan(share.visits(phase, n), share.batch_elems(phase, n), order, seed)
    return image_feed(source, plan, transform, _prefetch(param.data_param), options)


def _open_hdf5_data(param: Any, phase: int, share: Share, draw: Draw, options: ReaderOptions) -> Feed:
    from scaffe.data.feeds.hdf5_feed import hdf5_feed

    if param.HasField("transform_param"):
        raise DataError("HDF5Data does not transform data; transform_param must not be given")
    data, tops = param.hdf5_data_param, list(param.top)
    n = layer_batch_size(param)
    visits, n_elems = share.visits(phase, n), share.batch_elems(phase, n)
    return hdf5_feed(path_of(data.source), tops, visits, n_elems, data.shuffle, options)


def _open_window_data(param: Any, phase: int, share: Share, draw: Draw, options: ReaderOptions) -> Feed:
    from scaffe.data.feeds.window_feed import WindowOptions, window_feed

    data, transform = param.window_data_param, transform_options(param.transform_param, phase)
    n = layer_batch_size(param)
    window = WindowOptions(transform.crop_size, data.context_pad, data.crop_mode == "square", data.scale,
                           data.fg_threshold, data.bg_threshold, data.fg_fraction, data.cache_images,
                           path_of(data.root_folder))
    if Transform(transform).draws_per_visit:
        draw()  # Caffe seeds a transformer here and below that it never uses
    plan = Plan(share.visits(phase, n), share.batch_elems(phase, n), InOrder(share.global_batch(phase, n)), draw())
    _transform_seed(Transform(transform), draw, n_before=0)
    return window_feed(path_of(data.source), plan, transform, window, options)


def _open_dense_image_data(param: Any, phase: int, share: Share, draw: Draw, options: ReaderOptions) -> Feed:
    from scaffe.data.feeds.sample_feed import open_dense_image_data

    return open_dense_image_data(param, phase, share, draw, options)


def _open_image_seg_data(param: Any, phase: int, share: Share, draw: Draw, options: ReaderOptions) -> Feed:
    from scaffe.data.feeds.sample_feed import open_image_seg_data

    return open_image_seg_data(param, phase, share, draw, options)


def _open_video_data(param: Any, phase: int, share: Share, draw: Draw, options: ReaderOptions) -> Feed:
    from scaffe.data.feeds.sample_feed import open_video_data

    return open_video_data(param, phase, share, draw, options)


def _open_annotated_data(param: Any, phase: int, share: Share, draw: Draw, options: ReaderOptions) -> Feed:
    from scaffe.data.augment.pipeline import Pipeline
    from scaffe.data.feeds.annotated_feed import TruthOptions, annotated_feed
    from scaffe.data.sources.annotated import AnnotatedSource

    data, annotated, transform = param.data_param, param.annotated_data_param, param.transform_param
    n, mean = layer_batch_size(param), read_mean(path_of(transform.mean_file)) if transform.mean_file else None
    is_yolos = annotated.yolo_data_type == 1
    jitter = annotated.yolo_data_jitter if is_yolos else 0.0
    pipeline = Pipeline(transform, annotated.batch_sampler, mean, phase == TRAIN, jitter)
    if annotated.difficult_label_warmup:
        raise DataError("difficult_label_warmup is not there: a feed does not know how long training goes on")
    source = AnnotatedSource(path_of(data.source), colour_of(transform))
    seed = int(draw())
    plan = Plan(share.visits(phase, n), share.batch_elems(phase, n), InOrder(source.n_records), seed)
    truth = TruthOptions(annotated.train_diffcult) if is_yolos else None
    return annotated_feed(source, plan, pipeline, _prefetch(data), options, len(param.top),
                          annotated.HasField("anno_type"), truth, share.global_batch(phase, n))


def _transform_seed(transform: Transform, draw: Draw, n_before: int = 1) -> int:
    """Take the numbers that Caffe takes: two transformer seeds (the second counts), then the thread's."""
    seed = 0
    if transform.draws_per_visit:
        for _ in range(n_before):
            draw()
        seed = int(draw())
    draw()
    return seed


@dataclass(frozen=True)
class _Kind:
    """A type of data layer: the LayerParameter field with its parameters, the function that opens its feed, and whether
    that can decode on a device."""

    field: str
    opener: Callable[[Any, int, Share, Draw, ReaderOptions], Feed]
    on_device: bool = False


_KINDS = {"Data": _Kind("data_param", _open_data, True),
          "ImageData": _Kind("image_data_param", _open_image_data, True),
          "HDF5Data": _Kind("hdf5_data_param", _open_hdf5_data),
          "WindowData": _Kind("window_data_param", _open_window_data),
          "DenseImageData": _Kind("dense_image_data_param", _open_dense_image_data),
          "ImageSegData": _Kind("image_data_param", _open_image_seg_data),
          "VideoData": _Kind("video_data_param", _open_video_data),
          "AnnotatedData": _Kind("data_param", _open_annotated_data)}
