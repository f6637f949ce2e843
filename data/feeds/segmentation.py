"""Makes the feeds of DenseImageData (SegNet) and ImageSegData (DeepLab, PSPNet) from their messages."""

from __future__ import annotations

from typing import Any

from scaffe.data.errors import DataError
from scaffe.data.feeds.feed import Feed, Plan, ReaderOptions
from scaffe.data.feeds.parameters import Draw, batch_size_of, list_order, read_mean
from scaffe.data.feeds.sample_feed import sample_feed
from scaffe.data.order.share import TRAIN, Share
from scaffe.data.records.pair_transform import PairOptions
from scaffe.data.sources.image_pairs import Labels, PairList, PairSampler
from scaffe.proto.byte_text import path_of

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
    pair = PairOptions(_crop(data), True, data.mirror, (), False, 0, transform.scale, tuple(transform.mean_value), mean)
    files = _files(data, Labels.IMAGE_FILE)
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
