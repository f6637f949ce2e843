"""Turns the messages of data layers into options. Messages are duck typed."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from scaffe.data.errors import DataError
from scaffe.data.order.share import TRAIN
from scaffe.data.records.decode import Colour
from scaffe.data.records.transform import TransformOptions
from scaffe.input_files import read_input


def transform_options(param: Any, phase: int) -> TransformOptions:
    """The options in a TransformationParameter message. Reads the mean file; raises DataError if it cannot."""
    mean_image = read_mean(param.mean_file) if param.HasField("mean_file") else None
    return TransformOptions(param.scale, param.mirror, param.crop_size, tuple(param.mean_value), mean_image,
                            random_crop=phase == TRAIN)


def colour_of(param: Any) -> Colour:
    """How compressed images are decoded, from a TransformationParameter message. Raises DataError."""
    if param.force_color and param.force_gray:
        raise DataError("transform_param takes force_color or force_gray, not both")
    return Colour.BGR if param.force_color else Colour.GREY if param.force_gray else Colour.AS_STORED


def read_mean(path: str) -> np.ndarray:
    """Read a mean file (a BlobProto): float32 (channels, height, width). Raises DataError if it is not one image."""
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
    if len(shape) not in (3, 4) or min(shape) < 1 or (len(shape) == 4 and shape[0] != 1) or prod(shape) != values.size:
        raise DataError(f"mean file {path}: expected one image, found {values.size} values of shape {str(shape)[:200]}")
    return values.reshape(shape[-3:])


def batch_size_of(param: Any) -> int:
    """The batch_size in a DataParameter message or the like. Raises DataError if it is not at least 1."""
    if param.batch_size < 1:
        raise DataError("batch_size must be at least 1, and is not given or 0")
    return int(param.batch_size)
