"""Decodes image files as Caffe's OpenCV does. Several threads can decode at once.

Plain JPEG files go to libjpeg-turbo directly where simplejpeg is installed: OpenCV calls it, too, so the bits are the
same, but it writes to memory that is there and takes four fifths of the time. All others go to OpenCV.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from scaffe.data.records.jpeg_header import plain_size
from scaffe.data.sources.source import Run
from scaffe.errors import DataError
from scaffe.input_files import read_input

PATH_TOLD = 1000  # most characters of a path in a message
MOST_PIXELS = 1 << 28  # limit for one image: a file of 3 MB can unpack to a billion pixels


class Colour(IntEnum):
    """How an image is decoded; the values are OpenCV's imread flags."""

    AS_STORED = -1
    GREY = 0
    BGR = 1


@functools.cache
def opencv() -> ModuleType:
    """The OpenCV module, set to start no threads of its own. Raises DataError if it is not installed."""
    os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(MOST_PIXELS))  # OpenCV reads it at import
    try:
        import cv2
    except ImportError:
        raise DataError("images need OpenCV: pip install 'opencv-python-headless<5'") from None
    cv2.setNumThreads(0)
    return cv2


def check_resize(height: int, width: int, height_name: str, width_name: str) -> None:
    """Check the size that images are to be resized to; 0 and 0 means no resizing.

    Args:
        height, width: pixels.
        height_name, width_name: what error messages call them.

    Raises:
        DataError: only one of the two is given, one is negative, or they make more than MOST_PIXELS pixels.
    """
    if (height > 0) != (width > 0) or min(height, width) < 0:
        raise DataError(f"{height_name} and {width_name} go together, got {height} and {width}")
    if height * width > MOST_PIXELS:
        raise DataError(f"{height_name} {height} and {width_name} {width} make more than {MOST_PIXELS} pixels")


@functools.cache
def _turbo() -> Callable[..., Any] | None:
    """simplejpeg's decoder; None if it is not installed."""
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return None
    decoder: Callable[..., Any] = decode_jpeg
    return decoder


def decode(content: np.ndarray, colour: Colour, out: np.ndarray | None = None) -> np.ndarray | None:
    """Decode an image file that is in memory.

    Args:
        content: uint8, 1-D, the file's bytes.
        colour: how to decode it.
        out: uint8, 1-D, contiguous; the image may be written to its beginning, if it has room.

    Returns:
        uint8 (height, width, channels), blue first, perhaps a view of ``out``; None if OpenCV cannot decode it or its
        pixels do not have 8 bits.
    """
    turbo = _turbo() if colour != Colour.GREY else None
    image = _decode_plain(turbo, content, out) if turbo is not None else None
    if image is not None:
        return image
    cv2 = opencv()
    try:
        return _checked(cv2.imdecode(content, int(colour)))
    except cv2.error:
        return None


def decode_scaled(content: np.ndarray, colour: Colour, height: int, width: int) -> np.ndarray | None:
    """Decode a plain JPEG file at a half, a fourth or an eighth of its size, which libjpeg does in as much less time.

    Args:
        content: uint8, 1-D, the file's bytes.
        colour: BGR or GREY.
        height, width: the least that the image must keep, in pixels.

    Returns:
        uint8 (height', width', channels), blue first; None if the file is not a plain JPEG of at least twice that size,
        or is damaged.
    """
    has = plain_size(content)
    divisor = next((n for n in (8, 4, 2) if has[0] >= n * height and has[1] >= n * width), 0)
    if not divisor:
        return None
    cv2, name = opencv(), "GRAYSCALE" if colour == Colour.GREY else "COLOR"
    return _checked(cv2.imdecode(content, getattr(cv2, f"IMREAD_REDUCED_{name}_{divisor}")))


def _decode_plain(turbo: Callable[..., Any], content: np.ndarray, out: np.ndarray | None) -> np.ndarray | None:
    """The image of a plain JPEG file; None if it is no such file, or is damaged."""
    height, width = plain_size(content)
    n_bytes = 3 * height * width
    if not n_bytes or height * width > MOST_PIXELS:
        return None
    flat = out[:n_bytes] if out is not None and out.size >= n_bytes else np.empty(n_bytes, np.uint8)
    image = flat.reshape(height, width, 3)
    try:
        turbo(content, "BGR", buffer=image)
    except ValueError:  # cut short or damaged: OpenCV gives what there is
        return None
    return image


def read_image(path: str, colour: Colour, height: int = 0, width: int = 0, out: np.ndarray | None = None,
               scaled: bool = False) -> np.ndarray:
    """Read and decode an image file.

    Args:
        path: the file.
        colour: how to decode it.
        height, width: size in pixels to resize to, bilinearly as in Caffe; 0 and 0 keeps the image's own size.
        out: as for ``decode``.
        scaled: decode a JPEG of at least twice that size at a half, a fourth or an eighth of its own; pixels differ.

    Returns:
        uint8 (height, width, channels), blue first, perhaps a view of ``out``.

    Raises:
        DataError: the file is missing or is not an image with 8 bits a channel.
    """
    content, image = file_bytes(path), None
    if scaled and height and width:
        image = decode_scaled(content, colour, height, width)
    if image is None:
        image = decode(content, colour, None if height and width else out)
    if image is None:
        raise DataError(f"{path}: not an image of 8 bits that OpenCV reads")
    if height and width:
        image = opencv().resize(image, (width, height)).reshape(height, width, image.shape[2])
    return image


def file_bytes(path: str | Path) -> np.ndarray:
    """The bytes of a file, uint8, 1-D. Raises DataError if it cannot be read."""
    try:
        return np.frombuffer(read_input(path), np.uint8)
    except OSError as error:
        raise DataError(f"{str(path)[:PATH_TOLD]}: {error.strerror or error}") from None


GROUP_BYTES = 1 << 20  # images decoded before they are cropped: a few, which stay in a core's second-level cache
VECTOR_BYTES = 32
_memory = threading.local()


def _group_memory() -> np.ndarray:
    """Memory for images of this thread. libjpeg-turbo writes rows that begin at a vector's multiple past the caches,
    from where a crop would have to fetch them again; so this begins between two."""
    if not hasattr(_memory, "group"):
        memory = np.empty(GROUP_BYTES + VECTOR_BYTES, np.uint8)
        start = (VECTOR_BYTES // 2 - memory.ctypes.data) % VECTOR_BYTES
        _memory.group = memory[start:start + GROUP_BYTES]
    found: np.ndarray = _memory.group
    return found


def image_runs(make: Callable[[int, np.ndarray], np.ndarray], labels: Sequence[int] | np.ndarray) -> Iterator[Run]:
    """Decode images into memory of this thread, and give neighbours of one shape as one run.

    Args:
        make: (number of the image, uint8 1-D memory that it may be written to) → uint8 (height, width, channels),
            perhaps in that memory.
        labels: one for each image.

    Yields:
        Runs, each valid until the next.

    Raises:
        DataError: ``make`` does, after the images before have been given.
    """
    room = _group_memory()
    first, shape = 0, (0, 0, 0)  # of the group
    for i in range(len(labels)):
        n_bytes = shape[0] * shape[1] * shape[2]
        used = (i - first) * n_bytes
        if used and used + n_bytes > room.size:
            yield _group(room, shape, labels[first:i])
            first, used = i, 0
        try:
            image = make(i, room[used:])
        except DataError:
            if used:
                yield _group(room, shape, labels[first:i])
            raise
        moved = used > 0 and image.shape != shape
        if moved:
            yield _group(room, shape, labels[first:i])
            first, used = i, 0
        shape = image.shape
        if image.size > room.size:
            yield _group(image.reshape(-1), shape, labels[i:i + 1])
            first, shape = i + 1, (0, 0, 0)
            continue
        if image.base is not room.base or moved:
            room[used:used + image.size].reshape(shape)[...] = image
    if first < len(labels):
        yield _group(room, shape, labels[first:])


def _group(memory: np.ndarray, shape: tuple[int, ...], labels: Sequence[int] | np.ndarray) -> Run:
    """A run of images (height, width, channels), one after the other in memory."""
    height, width, channels = shape
    n_elems = height * width * channels
    pixels = memory[:len(labels) * n_elems]
    pixels.flags.writeable = False  # as mapped files are, so that kernels are compiled for one array type
    starts = np.arange(len(labels), dtype=np.int64) * n_elems
    return Run(pixels, starts, np.asarray(labels), (channels, height, width), interleaved=True)


def _checked(image: np.ndarray | None) -> np.ndarray | None:
    """The image with a channel axis; None if there is none or its pixels do not have 8 bits."""
    if image is None or image.dtype != np.uint8:
        return None
    return image if image.ndim == 3 else image[:, :, None]
