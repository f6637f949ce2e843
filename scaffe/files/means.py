"""Mean images: ``.binaryproto`` (a BlobProto)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scaffe.atomic_files import replacing
from scaffe.errors import UserError
from scaffe.files.blobs import blob_array, blob_parts, read_bytes
from scaffe.proto import caffe_pb2


def read_mean(path: str | Path) -> np.ndarray:
    """The array of a mean file, float32, usually (1, channels, height, width). Raises UserError."""
    raw = read_bytes(path)
    try:
        return blob_array(memoryview(raw))
    except ValueError as error:
        raise UserError(f"{path}: truncated, or not a mean image of {len(raw)} bytes ({error})") from error


def write_mean(path: str | Path, mean: np.ndarray) -> None:
    """Write (1, channels, height, width) in the old four-number form that Caffe's tools write. Raises UserError."""
    if mean.ndim != 4:
        raise UserError(f"{path}: a mean image has 4 axes (1, channels, height, width), not shape {mean.shape}")
    head = caffe_pb2.BlobProto(**dict(zip(("num", "channels", "height", "width"), mean.shape, strict=True)))
    with replacing(path, UserError) as file:
        file.write(head.SerializeToString())
        for piece in blob_parts(mean.reshape(-1))[1][:2]:  # the values alone, without the new shape
            file.write(piece)
