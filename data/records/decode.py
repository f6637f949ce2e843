"""Decodes image files with OpenCV, as Caffe does, so pixels equal Caffe's. Several threads can decode at once."""

from __future__ import annotations

import functools
import os
from enum import IntEnum
from pathlib import Path
from types import ModuleType

import numpy as np

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


def decode(content: np.ndarray, colour: Colour) -> np.ndarray | None:
    """Decode an image file that is in memory.

    Args:
        content: uint8, 1-D, the file's bytes.
        colour: how to decode it.

    Returns:
        uint8 (height, width, channels), blue first; None if OpenCV cannot decode it or its pixels do not have 8 bits.
    """
    cv2 = opencv()
    try:
        return _checked(cv2.imdecode(content, int(colour)))
    except cv2.error:
        return None


def read_image(path: str, colour: Colour, height: int = 0, width: int = 0) -> np.ndarray:
    """Read and decode an image file.

    Args:
        path: the file.
        colour: how to decode it.
        height, width: size in pixels to resize to, bilinearly as in Caffe; 0 and 0 keeps the image's own size.

    Returns:
        uint8 (height, width, channels), blue first.

    Raises:
        DataError: the file is missing or is not an image with 8 bits a channel.
    """
    cv2 = opencv()
    image = decode(file_bytes(path), colour)
    if image is None:
        raise DataError(f"{path}: not an image of 8 bits that OpenCV reads")
    if height and width:
        image = cv2.resize(image, (width, height)).reshape(height, width, image.shape[2])
    return image


def file_bytes(path: str | Path) -> np.ndarray:
    """The bytes of a file, uint8, 1-D. Raises DataError if it cannot be read."""
    try:
        return np.frombuffer(read_input(path), np.uint8)
    except OSError as error:
        raise DataError(f"{str(path)[:PATH_TOLD]}: {error.strerror or error}") from None


def run_of(image: np.ndarray, label: int) -> Run:
    """A run of one decoded image, uint8 (height, width, channels)."""
    height, width, channels = image.shape
    pixels = image.reshape(-1)
    pixels.flags.writeable = False  # as mapped files are, so that kernels are compiled for one array type
    return Run(pixels, np.zeros(1, np.int64), np.array([label]), (channels, height, width), interleaved=True)


def _checked(image: np.ndarray | None) -> np.ndarray | None:
    """The image with a channel axis; None if there is none or its pixels do not have 8 bits."""
    if image is None or image.dtype != np.uint8:
        return None
    return image if image.ndim == 3 else image[:, :, None]
