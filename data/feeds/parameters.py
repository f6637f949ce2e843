"""Turns the messages of data layers into options. Messages are duck typed."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from scaffe.data.feeds.feed import Order
from scaffe.data.order.orders import InOrder, shuffled
from scaffe.data.order.share import TRAIN
from scaffe.data.records.decode import Colour
from scaffe.data.records.transform import TransformOptions
from scaffe.errors import DataError
from scaffe.input_files import read_input
from scaffe.proto.byte_text import path_of

Draw = Callable[[], int]
"""The next raw number of the net's random stream, the same on every rank."""
AUGMENTATIONS = ("resize_param", "noise_param", "emit_constraint", "crop_h", "crop_w", "distort_param", "expand_param")


def transform_options(param: Any, phase: int) -> TransformOptions:
    """The options in a TransformationParameter message. Reads the mean file.

    Raises:
        DataError: the mean file cannot be read, or an option is given that other kinds of data layers have.
    """
    for name in ("crop_width", "crop_height", "scale_factors"):
        if getattr(param, name):
            raise DataError(f"transform_param's {name} is for ImageSegData; other layers take crop_size")
    given = {field.name for field, _ in param.ListFields()}
    refused = [name for name in AUGMENTATIONS if name in given]
    if refused:
        raise DataError(f"transform_param's {refused[0]} works in AnnotatedData layers alone")
    mean_image = read_mean(path_of(param.mean_file)) if param.HasField("mean_file") else None
    return TransformOptions(param.scale, param.mirror, param.crop_size, tuple(param.mean_value), mean_image,
                            random_crop=phase == TRAIN)


def colour_of(param: Any) -> Colour:
    """How compressed images are decoded, from a TransformationParameter message. Raises DataError."""
    if param.force_color and param.force_gray:
        raise DataError("transform_param takes force_color or force_gray, not both")
    return Colour.BGR if param.force_color else Colour.GREY if param.force_gray else Colour.AS_STORED


def read_mean(path: str) -> np.ndarray:
    """Read a mean file (a BlobProto): float32 (channels, height, width). Raises DataError if it is not one image."""
    return read_mean_array(path, 3)


def read_mean_array(path: str, n_axes: int) -> np.ndarray:
    """Read a mean file of an array with this many axes, 3 for images, 4 for clips; one more, of length 1, may precede.

    Raises:
        DataError: the file cannot be read, or does not hold one such array.
    """
    from google.protobuf.message import DecodeError

    from scaffe.proto import caffe_pb2

    blob = caffe_pb2.BlobProto()
    try:
        blob.ParseFromString(read_input(path))
    except OSError as error:
        raise DataError(f"mean file {path}: {error.strerror or error}") from None
    except DecodeError:
        raise DataError(f"mean file {path}: not a BlobProto") from None
    shape = tuple(blob.shape.dim) or (blob.num, blob.channels, blob.height, blob.width)
    values = np.array(blob.data or blob.double_data, np.float32)
    if blob.diff and not values.size and min(shape) > 0:  # of C3D's first version: 3 to 6 are length, ..., width, data
        values, shape = np.array(blob.diff, np.float32), (*shape, len(blob.diff) // prod(shape))
    n_more = len(shape) - n_axes
    if n_more not in (0, 1) or min(shape) < 1 or (n_more and shape[0] != 1) or prod(shape) != values.size:
        one = "image" if n_axes == 3 else "clip"
        raise DataError(f"mean file {path}: expected one {one}, found {values.size} values of shape "
                        f"{str(shape)[:200]}")
    return values.reshape(shape[-n_axes:])


def batch_size_of(param: Any) -> int:
    """The batch_size in a DataParameter message or the like. Raises DataError if it is not at least 1."""
    if param.batch_size < 1:
        raise DataError("batch_size must be at least 1, and is not given or 0")
    return int(param.batch_size)


def list_order(data: Any, n_records: int, draw: Draw) -> Order:
    """The order in which a list is read, from a message with ``shuffle``, ``rand_skip`` and ``source``.

    Raises:
        DataError: rand_skip leaves nothing out of which to read.
    """
    seed = int(draw()) if data.shuffle else 0
    skip = int(draw()) % data.rand_skip if data.rand_skip else 0
    if skip >= n_records:
        raise DataError(f"{path_of(data.source)}: rand_skip leaves out {skip} of {n_records} records")
    return shuffled(n_records, seed, skip) if data.shuffle else InOrder(n_records, skip)
