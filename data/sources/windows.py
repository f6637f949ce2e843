"""Reads window files: images with labelled boxes, for training R-CNN (Caffe 1.0, WindowDataLayer).

For each image the file has ``# index``, path, channels, height, width and number of windows, then one window a line:
``class overlap x1 y1 x2 y2``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaffe.errors import DataError
from scaffe.input_files import read_text_input

MOST_CHANNELS = 4  # of an image file


@dataclass(frozen=True)
class Windows:
    """All windows of a file.

    Attributes:
        paths: path of each image.
        n_channels: channels of the last image; Caffe takes it for all.
        foreground, background: int64 (n, 6): image index, label, x1, y1, x2, y2 (pixels, all inside the window).
            Background windows have label 0.
    """

    paths: list[str]
    n_channels: int
    foreground: np.ndarray
    background: np.ndarray


def read_windows(path: str, root: str, fg_threshold: float, bg_threshold: float) -> Windows:
    """Read the foreground and background windows of a window file.

    Args:
        path: the file.
        root: prefix of every image's path, joined without a slash.
        fg_threshold: windows with at least this overlap are foreground.
        bg_threshold: windows with less than this overlap, if not foreground, are background; others are left out.

    Raises:
        DataError: the file is missing, ends too early, has another format, or has no window of one of the two kinds.
    """
    try:
        words = iter(read_text_input(path, "surrogateescape").split())
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None
    paths: list[str] = []
    kinds: tuple[list[list[int]], list[list[int]]] = ([], [])
    channels = 0
    try:
        while (mark := next(words, None)) is not None:
            index = int(next(words))
            if mark != "#" or index != len(paths):
                raise DataError(f"{path}: expected '# {len(paths)}' at the head of an image, found '{mark} {index}'")
            paths.append(root + next(words))
            channels, _, _, n_windows = [_int32(next(words)) for _ in range(4)]
            if not 1 <= channels <= MOST_CHANNELS:
                raise DataError(f"{path}: image {index} has {channels} channels")
            for _ in range(n_windows):
                label, overlap = _int32(next(words)), np.float32(next(words))
                box = x1, y1, x2, y2 = [_int32(next(words)) for _ in range(4)]
                if (overlap >= fg_threshold or overlap < bg_threshold) and (x2 < x1 or y2 < y1):
                    raise DataError(f"{path}: image {index}: the window {x1} {y1} {x2} {y2} ends before it begins")
                if overlap >= fg_threshold:
                    if label <= 0:
                        raise DataError(f"{path}: image {index}: a foreground window has label {label}, not above 0")
                    kinds[1].append([index, label, *box])
                elif overlap < bg_threshold:
                    kinds[0].append([index, 0, *box])
    except StopIteration:
        raise DataError(f"{path}: breaks off within image {len(paths) - 1}") from None
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: image {len(paths) - 1}: {error}") from None
    for kind, name in zip(kinds, ("background", "foreground"), strict=True):
        if not kind:
            raise DataError(f"{path}: there is no {name} window")
    return Windows(paths, channels, np.array(kinds[1], np.int64), np.array(kinds[0], np.int64))


def _int32(word: str) -> int:
    """A whole number that fits Caffe's int. Raises ValueError."""
    number = int(word)
    if not -1 << 31 <= number < 1 << 31:
        raise ValueError(f"{word} does not fit 32 bits")
    return number
