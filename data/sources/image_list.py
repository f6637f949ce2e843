"""Reads images named by a text file of paths and labels (Caffe 1.0, ImageDataLayer)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from scaffe.data.records.decode import Colour, check_resize, file_bytes, image_runs, read_image
from scaffe.data.sources.source import Run
from scaffe.errors import DataError
from scaffe.input_files import read_text_input


def read_lines(path: str | Path) -> list[tuple[int, str]]:
    """The lines of a list file that are not empty, with their numbers from 1.

    Raises:
        DataError: the file cannot be read, or has no such line.
    """
    try:
        lines = read_text_input(path, "surrogateescape").removeprefix("\ufeff").splitlines()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None
    found = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise DataError(f"{path}: the list is empty")
    return found


def read_list(path: str | Path, keeps_empty: bool = False) -> tuple[list[str], np.ndarray]:
    """Read a list file: one ``path label`` a line, split at the last space. A missing label is 0.

    Args:
        path: the file.
        keeps_empty: give lines that are empty the path "" and the label 0, so that each has its line's number.

    Returns:
        The paths and the labels, int64 (n,).

    Raises:
        DataError: the file is missing or empty, or a label is not an int32; the message gives the line's number.
    """
    names: list[str] = []
    labels: list[int] = []
    for number, line in read_lines(path):
        n_empty = number - 1 - len(names) if keeps_empty else 0
        names += [""] * n_empty
        labels += [0] * n_empty
        name, _, label = line.rstrip().rpartition(" ")
        name = name.rstrip(" \t")  # more than one before the label
        if not name:
            name, label = label, "0"
        try:
            labels.append(int(label))
        except ValueError:
            raise DataError(f"{path}:{number}: expected 'path label', {label[:80]!r} is not a whole number") from None
        if not -1 << 31 <= labels[-1] < 1 << 31:
            raise DataError(f"{path}:{number}: the label {labels[-1]} does not fit 32 bits")
        names.append(name)
    return names, np.array(labels, np.int64)


class ImageListSource:
    """Images named by a list file.

    Args:
        list_path: the list file.
        root: prefix of every path, joined without a slash (a folder must end in one).
        height, width: pixels to resize to; 0 and 0 keeps each image's own size.
        is_colour: decode to three channels, blue first; otherwise to one.
        scaled: decode large JPEG files at a part of their size (see ``read_image``).

    Raises:
        DataError: the list cannot be read. ``read`` raises it for an image that cannot be read.
    """

    def __init__(self, list_path: str | Path, root: str = "", height: int = 0, width: int = 0,
                 is_colour: bool = True, scaled: bool = False) -> None:
        check_resize(height, width, "new_height", "new_width")
        self._names, self._labels = read_list(list_path)
        self._root, self._height, self._width = root, height, width
        self._scaled = scaled
        self._colour = Colour.BGR if is_colour else Colour.GREY
        self.n_records = len(self._names)

    def read(self, records: np.ndarray) -> Iterator[Run]:
        """The images with these numbers in the list, uint8; neighbours of one size in one run."""
        def make(i: int, out: np.ndarray) -> np.ndarray:
            return read_image(self.name_of(records[i]), self._colour, self._height, self._width, out,
                              self._scaled)

        return image_runs(make, self._labels[records])

    def files(self, records: np.ndarray) -> tuple[list[np.ndarray | None], np.ndarray]:
        """These files and their labels; no file where images are resized or grey."""
        return [self._file(record) for record in records.tolist()], self._labels[records]

    def _file(self, record: int) -> np.ndarray | None:
        if self._height or self._colour != Colour.BGR:
            return None
        try:
            return file_bytes(self.name_of(record))
        except DataError:  # which ``read`` raises
            return None

    def name_of(self, record: int) -> str:
        """The image's path."""
        return self._root + self._names[record]

    def close(self) -> None:
        """Nothing to release."""
