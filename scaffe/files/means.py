"""Mean images: ``.binaryproto`` (a BlobProto)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scaffe.errors import UserError
from scaffe.files.atomic import replacing
from scaffe.files.blobs import blob_array
from scaffe.proto import caffe_pb2
from scaffe.proto.text import ProtoError, parse_binary


def read_mean(path: str | Path) -> np.ndarray:
    """The array of a mean file, float32, usually (1, channels, height, width). Raises UserError."""
    try:
        return blob_array(parse_binary(Path(path).read_bytes(), caffe_pb2.BlobProto, str(path)))
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except ProtoError as error:
        raise UserError(str(error)) from error
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error


def write_mean(path: str | Path, mean: np.ndarray) -> None:
    """Write (1, channels, height, width) in the old four-number form that Caffe's tools write. Raises UserError."""
    blob = caffe_pb2.BlobProto(num=mean.shape[0], channels=mean.shape[1], height=mean.shape[2], width=mean.shape[3])
    blob.data.extend(np.asarray(mean, np.float32).reshape(-1).tolist())
    with replacing(path) as file:
        file.write(blob.SerializeToString())
