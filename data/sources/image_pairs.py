"""Images with an image of labels each, named by a list file (SegNet's and ENet's DenseImageData, PSPNet's
ImageSegData)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from scaffe.data.records.decode import Colour, check_resize, file_bytes, opencv, read_image
from scaffe.data.records.pair_transform import PairOptions, transform_pair
from scaffe.data.sources.image_list import read_lines
from scaffe.errors import DataError


class Labels(Enum):
    """What a list's second column is."""

    IMAGE_FILE = "an image file of one label a pixel"
    NUMBER = "the label of all pixels"
    NONE = "nothing: all pixels have the label to be ignored"


@dataclass(frozen=True)
class PairList:
    """What the list names and how its files are read.

    Attributes:
        path: the list file, one image a line.
        labels: what the second column is.
        root: prefix of every path, joined without a slash.
        height, width: pixels to resize images and labels to; 0 and 0 keeps their own size.
        is_colour: decode images to three channels, else one.
        nearest: resize labels to the nearest pixel's; else bilinearly, as PSPNet's fork does.
        label_factor: labels have the images' height and width divided by this, rounded down; if above 1, height and
            width are given.
        shows_size: a sample has a third array, (height, width) of the image, at most the crop's.
    """

    path: str
    labels: Labels
    root: str = ""
    height: int = 0
    width: int = 0
    is_colour: bool = True
    nearest: bool = True
    label_factor: int = 1
    shows_size: bool = False


def read_pairs(path: str, labels: Labels) -> list[tuple[str, str]]:
    """Read a list of ``image labels`` lines. Raises DataError, with the line's number, if a column is missing."""
    pairs = []
    for number, line in read_lines(path):
        words = line.split()
        if len(words) < 2 and labels is not Labels.NONE:
            raise DataError(f"{path}:{number}: expected an image and {labels.value}, got {line[:80]!r}")
        pairs.append((words[0], words[1] if labels is not Labels.NONE else ""))
    return pairs


class PairSampler:
    """Reads and transforms pairs; see ``feeds.sample_feed.Sampler``.

    A sample is the image, (height, width, channels), its labels, (height, width, 1), and perhaps its size, (1, 2, 1).

    Args:
        files: what to read.
        transform: how to transform it.
    """

    def __init__(self, files: PairList, transform: PairOptions) -> None:
        check_resize(files.height, files.width, "new_height", "new_width")
        self._files, self._transform = files, transform
        self._pairs = read_pairs(files.path, files.labels)
        self.n_records, self.draws_per_visit = len(self._pairs), transform.draws_per_visit

    def make(self, record: int, draws: np.ndarray) -> list[np.ndarray]:
        """One sample. Raises DataError, with the image's path, if a file cannot be read or does not fit."""
        files, (name, second) = self._files, self._pairs[record]
        path = files.root + name
        image = read_image(path, Colour.BGR if files.is_colour else Colour.GREY, files.height, files.width)
        labels = self._labels(second, image.shape[:2], path)
        try:
            sample = list(transform_pair(image, labels, draws, self._transform))
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        if files.shows_size:
            size = [min(n, top) for n, top in zip(image.shape[:2], sample[0].shape[:2], strict=True)]
            sample.append(np.array(size, np.float32).reshape(1, 2, 1))
        return sample

    def _labels(self, second: str, shape: tuple[int, ...], path: str) -> np.ndarray:
        """The labels of an image's pixels, uint8 (height, width)."""
        if self._files.labels is Labels.NONE:
            return np.full(shape, _byte(self._transform.ignore_label, path), np.uint8)
        if self._files.labels is Labels.NUMBER:
            try:
                return np.full(shape, _byte(int(second), path), np.uint8)
            except ValueError:
                raise DataError(f"{path}: the label {second[:80]!r} is not a whole number") from None
        return read_labels(self._files.root + second, self._files)


def read_labels(path: str | Path, files: PairList) -> np.ndarray:
    """Read an image of labels, uint8 (height, width). Raises DataError if it cannot be read."""
    height, width = files.height // files.label_factor, files.width // files.label_factor
    if not files.height or not files.nearest:
        return read_image(str(path), Colour.GREY, height, width)[:, :, 0]
    cv2 = opencv()
    labels = cv2.imdecode(file_bytes(path), int(Colour.GREY))
    if labels is None:
        raise DataError(f"{path}: not an image of 8 bits that OpenCV reads")
    resized: np.ndarray = cv2.resize(labels, (width, height), interpolation=cv2.INTER_NEAREST)
    return resized


def _byte(label: int, path: str) -> int:
    if not 0 <= label <= 255:
        raise DataError(f"{path}: the label {label} is not within 0 and 255, as those of images are")
    return label
