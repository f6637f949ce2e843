"""IDX files, the format of MNIST's archives: read and written plain or gzipped (format: LeCun's MNIST page)."""

from __future__ import annotations

import gzip
import struct
import zlib
from math import prod
from pathlib import Path

import numpy as np

from scaffe.atomic_files import write_whole
from scaffe.data.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"


def read_idx(path: str | Path, n_axes: int) -> np.ndarray:
    """The uint8 array of an IDX file, gzipped or not, whatever its name ends in.

    Args:
        path: the file.
        n_axes: axes expected, 3 for images (n, height, width), 1 for labels (n,).

    Raises:
        DataError: the file is missing, is not IDX with uint8 and n_axes axes, or is shorter or longer than it says.
    """
    content = _content(Path(path))
    head = 4 + 4 * n_axes
    if len(content) < head:
        raise DataError(f"{path}: expected an IDX file with {n_axes} axes, found only {len(content)} bytes")
    magic, *shape = struct.unpack(f">{1 + n_axes}I", content[:head])
    if magic != 0x0800 + n_axes:
        raise DataError(f"{path}: expected IDX magic number {0x0800 + n_axes}, found {magic}")
    if len(content) != head + prod(shape):
        raise DataError(f"{path}: {'x'.join(map(str, shape))} bytes expected after the header, "
                        f"found {len(content) - head}")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def write_idx(path: str | Path, array: np.ndarray) -> None:
    """Write a uint8 array as IDX; gzipped, without a time stamp, where the name ends in ``.gz``.

    Raises DataError: another dtype, or it cannot be written.
    """
    if array.dtype != np.uint8:
        raise DataError(f"{path}: IDX is written from uint8, got {array.dtype}")
    content = struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()
    path = Path(path)
    write_whole(path, gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content, DataError)


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == GZIP_MAGIC else content
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file: {error}") from None
