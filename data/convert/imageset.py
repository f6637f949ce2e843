"""Converts a list of images to a database (Caffe 1.0, tools/convert_imageset)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from scaffe.data.convert.ahead import map_ahead
from scaffe.data.convert.writers import writer_of
from scaffe.data.order.orders import shuffled
from scaffe.data.records.datum import encode_file, encode_image
from scaffe.data.records.decode import Colour, check_resize, file_bytes, opencv, read_image
from scaffe.data.sources.image_list import read_list
from scaffe.errors import DataError

Made = tuple[bytes, bytes, tuple[int, ...]]  # key, value, the image's shape
T = TypeVar("T")
MOST_AHEAD = 512  # images decoded while a thousand records are written


@dataclass(frozen=True)
class ImagesetOptions:
    """The flags of convert_imageset.

    Attributes:
        grey: one channel instead of three.
        shuffle: write the images in random order.
        seed: uint32, of the random order.
        height, width: pixels to resize to; 0 and 0 keeps each image's own size.
        scaled: decode JPEG files of at least twice that size at a part of their own.
        check_shape: all images must have the same shape.
        encoded: records hold image files instead of pixels.
        encode_type: type of those files, "jpg", "png", ...; "" keeps each file's own type. Implies ``encoded``.
        n_threads: decoding threads.
        on_bad: called with one line for every image that cannot be read. Such images are left out, as in Caffe.
    """

    grey: bool = False
    shuffle: bool = False
    seed: int = 1
    height: int = 0
    width: int = 0
    scaled: bool = False
    check_shape: bool = False
    encoded: bool = False
    encode_type: str = ""
    n_threads: int = 1
    on_bad: Callable[[str], None] = print

    def order(self, n_lines: int) -> Iterable[int]:
        """The numbers of the list's lines, in the order of the records."""
        return shuffled(n_lines, self.seed).records(np.arange(n_lines)) if self.shuffle else range(n_lines)


def convert_imageset(root: str, list_path: str | Path, db_path: str | Path, options: ImagesetOptions,
                     force: bool = False, backend: str = "lmdb") -> int:
    """Write the images of a list as Datum records.

    A record's key is its line's place in the list, after shuffling, in 8 digits, then an underscore and the path as
    listed. Empty lines have places too, as in Caffe.

    Args:
        root: prefix of every path, joined without a slash.
        list_path: text file with one ``path label`` a line.
        db_path: the database's folder, which is made.
        options: the flags.
        force: replace the folder if it exists.
        backend: lmdb or leveldb.

    Returns:
        Number of records written.

    Raises:
        DataError: the list cannot be read, the folder exists and ``force`` is not given, no image can be read, or
            shapes differ although ``check_shape`` is set.
    """
    check_resize(options.height, options.width, "-resize_height", "-resize_width")
    write = writer_of(backend)
    names, labels = read_list(list_path, keeps_empty=True)
    maker, order = _RecordMaker(root, options), enumerate(options.order(len(names)))
    with ThreadPoolExecutor(options.n_threads) as pool:
        items = ((i, names[line], int(labels[line])) for i, line in order if names[line])
        made = made_ahead(pool, options.n_threads, maker.make, items)
        return write(db_path, checked(made, list_path, options.check_shape), force)


def made_ahead(pool: ThreadPoolExecutor, n_threads: int, make: Callable[[T], Made | None],
               items: Iterator[T]) -> Iterator[Made | None]:
    """The records that ``make`` makes of the items, in order, made ahead by the pool's ``n_threads`` threads."""
    return map_ahead(pool, make, items, 2 * n_threads, MOST_AHEAD, lambda made: len(made[1]) if made else 0)


def checked(made: Iterator[Made | None], list_path: str | Path, alike: bool) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of the records that could be made. Raises DataError if none, or (``alike``) shapes differ."""
    first: tuple[int, ...] | None = None
    for record in made:
        if record is None:
            continue
        key, value, shape = record
        first = first or shape
        if alike and shape != first:
            raise DataError(f"{key.decode(errors='replace')}: has the shape {shape}, others have {first}")
        yield key, value
    if first is None:
        raise DataError(f"{list_path}: not one of its images can be read")


class _RecordMaker:
    """Makes records. Threads share one object."""

    def __init__(self, root: str, options: ImagesetOptions) -> None:
        self._root, self._options = root, options
        self._colour = Colour.GREY if options.grey else Colour.BGR

    def make(self, item: tuple[int, str, int]) -> Made | None:
        """Key, Datum and shape of one listed image (number, path, label); None if it cannot be read."""
        number, name, label = item
        options = self._options
        try:
            image = read_image(self._root + name, self._colour, options.height, options.width, scaled=options.scaled)
        except DataError as error:
            options.on_bad(f"left out: {error}")
            return None
        key = b"%08d_" % number + name.encode(errors="surrogateescape")
        if options.encoded or options.encode_type:
            content = encoded_file(self._root + name, image, options.encode_type, options.height > 0)
            return key, encode_file(content, label), image.shape
        return key, encode_image(np.moveaxis(image, -1, 0), label), image.shape


def encoded_file(path: str, image: np.ndarray, encode_type: str, is_resized: bool) -> bytes:
    """An image file's own bytes if it has the wanted type and is not resized, else the image encoded anew.

    Args:
        path: the file.
        image: uint8 (height, width, channels), what to encode.
        encode_type: "jpg", "png", ...; "" keeps the file's own type.
        is_resized: whether ``image`` is not what is in the file.

    Raises:
        DataError: OpenCV cannot write images of that type.
    """
    ending = Path(path).suffix[1:].lower()
    wanted = (encode_type or ending).lower().removeprefix(".")
    if not is_resized and wanted in (ending, {"jpeg": "jpg"}.get(ending)):
        return bytes(file_bytes(path))
    cv2 = opencv()
    try:
        if not wanted.isascii():  # OpenCV crashes at bytes that are no UTF-8
            raise ValueError(wanted)
        _, content = cv2.imencode("." + wanted, image)
    except (cv2.error, ValueError):
        raise DataError(f"{path}: OpenCV cannot write images of type {wanted!r}") from None
    return bytes(content)
