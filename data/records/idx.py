"""Reads and writes IDX files, plain or gzipped: the format of MNIST's archives (format: LeCun's MNIST page)."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO

import numpy as np

from scaffe.atomic_files import write_whole
from scaffe.errors import DataError
from scaffe.input_files import ALWAYS_ALLOWED_BYTES, open_input

GZIP_MAGIC = b"\x1f\x8b"
IMAGES_RATIO = 64  # most that gzip may have shrunk a file; MNIST's images shrink 5 times


def read_idx(path: str | Path, n_axes: int) -> np.ndarray:
    """Read an IDX file. Whether it is gzipped is seen from its content, not its name.

    Args:
        path: the file.
        n_axes: number of axes expected: 3 for images (n, height, width), 1 for labels (n,).

    Returns:
        A uint8 array with n_axes axes.

    Raises:
        DataError: the file is missing, is not an IDX file of uint8 with n_axes axes, or its length does not match its
            header.
    """
    n_head = 4 + 4 * n_axes
    with _opened(path) as file:
        head = file.read(n_head)
        if len(head) < n_head:
            raise DataError(f"{path}: expected an IDX file with {n_axes} axes, found only {len(head)} bytes")
        magic, *shape = struct.unpack(f">{1 + n_axes}I", head)
        if magic != 0x0800 + n_axes:
            raise DataError(f"{path}: expected IDX magic number {0x0800 + n_axes}, found {magic}")
        said = f"{'x'.join(map(str, shape))} bytes expected after the header"
        if prod(shape) > _most_bytes(path):
            raise DataError(f"{path}: {said}, more than a file of {Path(path).stat().st_size} bytes may hold")
        content = file.read(prod(shape) + 1)
    if len(content) != prod(shape):
        raise DataError(f"{path}: {said}, found {len(content)}"
                        + (" or more" if len(content) > prod(shape) else ""))
    return np.frombuffer(content, np.uint8).reshape(shape)


def write_idx(path: str | Path, array: np.ndarray) -> None:
    """Write a uint8 array as an IDX file.

    Args:
        path: the file; a name that ends in ``.gz`` makes it gzipped, without a time stamp.
        array: uint8, any number of axes.

    Raises:
        DataError: the array has another dtype, or the file cannot be written.
    """
    if array.dtype != np.uint8:
        raise DataError(f"{path}: IDX is written from uint8, got {array.dtype}")
    content = struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()
    path = Path(path)
    write_whole(path, gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content, DataError)


@contextmanager
def _opened(path: str | Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Open a file, gzipped or not, for reading its unpacked content. Raises DataError."""
    try:
        with open_input(path) as file:
            packed = file.read(2) == GZIP_MAGIC
            file.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield unpacked
            else:
                yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: damaged gzip file: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None


def _most_bytes(path: str | Path) -> int:
    """Most bytes that the content may have: IMAGES_RATIO times the file's length, or ALWAYS_ALLOWED_BYTES if more."""
    return max(ALWAYS_ALLOWED_BYTES, IMAGES_RATIO * Path(path).stat().st_size)
