"""Caffe's ``caffe.io``: reading images, preparing them for a net, and converting messages to arrays and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.proto import caffe_pb2
from scaffe.pycaffe.images import Transformer, load_image, oversample, resize_image

__all__ = ["Transformer", "array_to_blobproto", "array_to_datum", "arraylist_to_blobprotovector_str",
           "blobproto_to_array", "blobprotovector_str_to_arraylist", "caffe_pb2", "datum_to_array", "load_image",
           "oversample", "resize_image"]
OLD_DIMS = ("num", "channels", "height", "width")


def blobproto_to_array(blob: Any, return_diff: bool = False) -> np.ndarray:
    """The data of a BlobProto as an array.

    Args:
        blob: the BlobProto.
        return_diff: return the diff instead of the data.

    Returns:
        float64 in the blob's shape; (num, channels, height, width) if the blob has the old four-number shape.

    Raises:
        ValueError: the shape does not fit the number of values.
    """
    single, double = (blob.diff, blob.double_diff) if return_diff else (blob.data, blob.double_data)
    is_old = any(blob.HasField(name) for name in OLD_DIMS)
    shape = tuple(getattr(blob, name) for name in OLD_DIMS) if is_old else tuple(blob.shape.dim)
    return np.array(single or double, np.float64).reshape(shape)


def array_to_blobproto(arr: np.ndarray, diff: np.ndarray | None = None) -> Any:
    """An array, and its diff if given, as a BlobProto."""
    blob = caffe_pb2.BlobProto()
    blob.shape.dim.extend(arr.shape)
    blob.data.extend(np.asarray(arr, np.float64).ravel().tolist())
    if diff is not None:
        blob.diff.extend(np.asarray(diff, np.float64).ravel().tolist())
    return blob


def arraylist_to_blobprotovector_str(arraylist: Iterable[np.ndarray]) -> bytes:
    """Arrays as a serialized BlobProtoVector."""
    return bytes(caffe_pb2.BlobProtoVector(blobs=[array_to_blobproto(a) for a in arraylist]).SerializeToString())


def blobprotovector_str_to_arraylist(str: bytes) -> list[np.ndarray]:
    """The arrays of a serialized BlobProtoVector."""
    return [blobproto_to_array(blob) for blob in caffe_pb2.BlobProtoVector.FromString(str).blobs]


def array_to_datum(arr: np.ndarray, label: int | None = None) -> Any:
    """A (channels, height, width) array as a Datum; uint8 is stored as bytes, any other dtype as floats.

    Raises:
        UserError: the array does not have three axes.
    """
    if arr.ndim != 3:
        raise UserError(f"a Datum takes an array of shape (channels, height, width), got {arr.shape}")
    datum = caffe_pb2.Datum(channels=arr.shape[0], height=arr.shape[1], width=arr.shape[2])
    if arr.dtype == np.uint8:
        datum.data = arr.tobytes()
    else:
        datum.float_data.extend(arr.astype(np.float64).ravel().tolist())
    if label is not None:
        datum.label = int(label)
    return datum


def datum_to_array(datum: Any) -> np.ndarray:
    """A Datum's pixels as (channels, height, width): uint8 if stored as bytes, float64 if stored as floats.

    Raises:
        ValueError: the number of values does not fit the shape, or the Datum holds an encoded image (JPEG, PNG).
    """
    if datum.encoded:
        raise UserError("the Datum holds an image file (encoded: true), not pixels")
    shape = (datum.channels, datum.height, datum.width)
    if datum.data:
        return np.frombuffer(datum.data, np.uint8).reshape(shape).copy()
    return np.array(datum.float_data, np.float64).reshape(shape)
