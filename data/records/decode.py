"""Image files into pixels, by OpenCV as in Caffe: pixels are Caffe's, and threads decode side by side."""

from __future__ import annotations

import functools
import os
from enum import IntEnum
from pathlib import Path
from types import ModuleType

import numpy as np

from scaffe.data.errors import DataError
from scaffe.data.sources.source import Run
from scaffe.input_files import read_input

PATH_TOLD = 1000  # characters of a path, in messages
MOST_PIXELS = 1 << 28  # of an image; a file of 3 MB can hold a billion


class Colour(IntEnum):
    """What to make of an image; the values are OpenCV's imread flags."""

    AS_STORED = -1
    GREY = 0
    BGR = 1


@functools.cache
def opencv() -> ModuleType:
    """OpenCV, told to start no threads of its own. Raises DataError where it is not installed."""
    os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(MOST_PIXELS))  # OpenCV looks as it is imported
    try:
        import cv2
    except ImportError:
        raise DataError("images need OpenCV: pip install 'opencv-python-headless<5'") from None
    cv2.setNumThreads(0)
    return cv2


def check_resize(height: int, width: int, height_name: str, width_name: str) -> None:
    """Raises DataError for a size to resize images to that is one-sided, negative, or more than MOST_PIXELS."""
    if (height > 0) != (width > 0) or min(height, width) < 0:
        raise DataError(f"{height_name} and {width_name} go together, got {height} and {width}")
    if height * width > MOST_PIXELS:
        raise DataError(f"{height_name} {height} and {width_name} {width} make more than {MOST_PIXELS} pixels")


def decode(content: np.ndarray, colour: Colour) -> np.ndarray | None:
    """A file's bytes (uint8, 1-D) into uint8 (height, width, channels), channels blue first; None where it fails."""
    cv2 = opencv()
    try:
        return _checked(cv2.imdecode(content, int(colour)))
    except cv2.error:
        return None


def read_image(path: str, colour: Colour, height: int = 0, width: int = 0) -> np.ndarray:
    """An image file as uint8 (height, width, channels), channels blue first.

    Args:
        path: the file.
        colour: what to make of it.
        height, width: resize to this, bilinear as in Caffe; 0 and 0 leave it as it is.

    Raises:
        DataError: the file is missing or is not an image of 8 bits.
    """
    cv2 = opencv()
    image = decode(file_bytes(path), colour)
    if image is None:
        raise DataError(f"{path}: not an image of 8 bits that OpenCV reads")
    if height and width:
        image = cv2.resize(image, (width, height)).reshape(height, width, image.shape[2])
    return image


def file_bytes(path: str | Path) -> np.ndarray:
    """A whole file, uint8. Raises DataError."""
    try:
        return np.frombuffer(read_input(path), np.uint8)
    except OSError as error:
        raise DataError(f"{str(path)[:PATH_TOLD]}: {error.strerror or error}") from None


def run_of(image: np.ndarray, label: int) -> Run:
    """A run of one decoded image."""
    height, width, channels = image.shape
    pixels = image.reshape(-1)
    pixels.flags.writeable = False  # one kind of array for the kernels
    return Run(pixels, np.zeros(1, np.int64), np.array([label]), (channels, height, width), interleaved=True)


def _checked(image: np.ndarray | None) -> np.ndarray | None:
    """With a channel axis; None where there are no pixels or not of 8 bits."""
    if image is None or image.dtype != np.uint8:
        return None
    return image if image.ndim == 3 else image[:, :, None]
