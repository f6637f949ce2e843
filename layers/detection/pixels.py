"""Boxes in fractions of a net's input as pixels of the image that it was made of (weiliu89/caffe, bbox_util.cpp)."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.input_files import read_text_input
from scaffe.layers.base.errors import LayerError

WARP, FIT_SMALL_SIZE, FIT_LARGE_SIZE_AND_PAD = 1, 2, 3  # ResizeParameter.Resize_mode


def read_sizes(path: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Names, heights and widths of images, from a text file: ``name height width`` a line.

    Raises:
        LayerError: the file is missing or empty, or a line is not of that form.
    """
    try:
        lines = read_text_input(path, "surrogateescape").splitlines()
    except OSError as error:
        raise LayerError(f"name_size_file {path}: {error.strerror or error}") from None
    names, sizes = [], []
    for number, line in enumerate(lines, 1):
        words = line.rsplit(maxsplit=2)
        if not words:
            continue
        if len(words) != 3 or not all(word.isascii() and word.isdigit() and int(word) for word in words[1:]):
            raise LayerError(f"name_size_file {path}:{number}: expected 'name height width', found {line[:80]!r}")
        names.append(words[0])
        sizes.append((int(words[1]), int(words[2])))
    if not names:
        raise LayerError(f"name_size_file {path}: the file is empty")
    return names, sizes


def check_resize(resize: Any) -> None:
    """Raise LayerError unless a ResizeParameter message has a height and a width."""
    if not resize.height or not resize.width:
        raise LayerError(f"resize_param wants height and width above 0, got {resize.height} and {resize.width}")


def to_pixels(boxes: np.ndarray, height: int, width: int, resize: Any = None) -> np.ndarray:
    """Boxes as pixels of the original image.

    Args:
        boxes: (n, 4), fractions of the net's input.
        height, width: of the original image.
        resize: the ResizeParameter message by which the input was made of it; None: it was warped.

    Returns:
        (n, 4), clipped to the image.
    """
    extent = np.array([width, height, width, height], boxes.dtype)
    if resize is not None and resize.resize_mode == FIT_SMALL_SIZE and resize.height_scale and resize.width_scale:
        scale = [resize.width_scale, resize.height_scale] * 2
        scaled: np.ndarray = np.clip(boxes * np.array(scale, boxes.dtype), 0, extent)
        return scaled
    if resize is not None and resize.resize_mode == FIT_LARGE_SIZE_AND_PAD:
        pad_x, pad_y = padding(height, width, resize)
        start = np.array([pad_x / resize.width, pad_y / resize.height] * 2, boxes.dtype)
        boxes = (boxes - start) / (1 - 2 * start)
    inside: np.ndarray = np.clip(boxes, 0, 1) * extent
    return inside


def padding(height: int, width: int, resize: Any) -> tuple[float, float]:
    """Columns left and rows above an image that is resized to fit into height and width of ``resize``, and padded."""
    aspect = width / height
    if aspect > resize.width / resize.height:
        return 0.0, (resize.height - resize.width / aspect) / 2
    return (resize.width - resize.height * aspect) / 2, 0.0
