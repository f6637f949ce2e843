"""Converts a list of images and annotations to a database (weiliu89/caffe, tools/convert_annoset)."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.data.convert.annotations import READERS, beyond, group
from scaffe.data.convert.imageset import ImagesetOptions, Made, checked, encoded_file, made_ahead
from scaffe.data.convert.writers import writer_of
from scaffe.data.records.decode import MOST_PIXELS, Colour, check_resize, opencv, read_image
from scaffe.data.sources.image_list import read_lines, read_list
from scaffe.errors import DataError
from scaffe.input_files import there

NO_LABEL = -1  # of a whole image whose objects have labels


@dataclass(frozen=True)
class AnnosetOptions:
    """The flags of convert_annoset.

    Attributes:
        images: the flags that it shares with convert_imageset.
        detection: lines name files of annotations; otherwise they have labels, as for convert_imageset.
        label_type: kind of those files: xml, json or txt.
        labels: the classes' labels by name.
        min_dim: smaller images are enlarged until their shorter side has this many pixels; 0: no.
        max_dim: larger images are shrunk until their longer side has at most this many pixels; 0: no.
    """

    images: ImagesetOptions = field(default_factory=ImagesetOptions)
    detection: bool = False
    label_type: str = "xml"
    labels: Mapping[str, int] = field(default_factory=dict)
    min_dim: int = 0
    max_dim: int = 0


def convert_annoset(root: str, list_path: str | Path, db_path: str | Path, options: AnnosetOptions,
                    force: bool = False, backend: str = "lmdb") -> int:
    """Write the images of a list and their annotations as AnnotatedDatum records.

    A record's key is its place in the list, after shuffling, in 8 digits, then an underscore and the image's path as
    listed. An image without a file of annotations has no objects. Images that cannot be read are left out.

    Args:
        root: prefix of every path, joined without a slash.
        list_path: text file, ``image annotations`` a line, or ``image label``.
        db_path: the database's folder, which is made.
        options: the flags.
        force: replace the folder if it exists.
        backend: lmdb or leveldb.

    Returns:
        Number of records written.

    Raises:
        DataError: the list or a file of annotations cannot be read, the folder exists and ``force`` is not given, no
            image can be read, or shapes differ although ``check_shape`` is set.
    """
    images = options.images
    check_resize(images.height, images.width, "-resize_height", "-resize_width")
    write = writer_of(backend)
    lines = _pairs(list_path) if options.detection else _labelled(list_path)
    maker = _Maker(root, options)
    with ThreadPoolExecutor(images.n_threads) as pool:
        items = ((i, *lines[line]) for i, line in enumerate(images.order(len(lines))))
        made = made_ahead(pool, images.n_threads, maker.make, items)
        return write(db_path, checked(made, list_path, images.check_shape), force)


def _labelled(list_path: str | Path) -> list[tuple[str, str]]:
    """Paths and labels of images."""
    names, labels = read_list(list_path)
    return [(name, str(label)) for name, label in zip(names, labels, strict=True)]


def _pairs(list_path: str | Path) -> list[tuple[str, str]]:
    """Paths of images and of their annotations. Raises DataError for a line of another form."""
    pairs = [(number, line.rsplit(maxsplit=1)) for number, line in read_lines(list_path)]
    for number, words in pairs:
        if len(words) != 2:
            raise DataError(f"{list_path}:{number}: expected 'image annotations', found {words[0][:80]!r}")
    return [(words[0], words[1]) for _, words in pairs]


class _Maker:
    """Makes records. Threads share one object."""

    def __init__(self, root: str, options: AnnosetOptions) -> None:
        self._root, self._options = root, options
        self._colour = Colour.GREY if options.images.grey else Colour.BGR

    def make(self, item: tuple[int, str, str]) -> Made | None:
        """Key, AnnotatedDatum and shape of one listed image (number, path, annotations or label), or None."""
        from scaffe.proto import caffe_pb2

        number, name, about = item
        try:
            original = read_image(self._root + name, self._colour)
        except DataError as error:
            self._options.images.on_bad(f"left out: {error}")
            return None
        image = self._resized(original)
        message = caffe_pb2.AnnotatedDatum()
        self._fill(message.datum, name, image, image is not original)
        message.datum.label = NO_LABEL if self._options.detection else int(about)
        if self._options.detection:
            message.type = message.BBOX
            self._annotate(message, self._root + about, original.shape[:2])
        return b"%08d_" % number + name.encode(errors="surrogateescape"), message.SerializeToString(), image.shape

    def _resized(self, image: np.ndarray) -> np.ndarray:
        """The image resized as the flags say; ``image`` itself if they do not."""
        options, (height, width) = self._options, image.shape[:2]
        if options.min_dim <= 0 and options.max_dim <= 0:
            wanted = options.images.height, options.images.width
        else:
            factor = max(1.0, options.min_dim / min(height, width)) if options.min_dim > 0 else 1.0
            if options.max_dim > 0 and int(factor * max(height, width)) > options.max_dim:
                factor = options.max_dim / max(height, width)
            wanted = (0, 0) if factor == 1 else (max(1, round(height * factor)), max(1, round(width * factor)))
        if not wanted[0]:
            return image
        if wanted[0] * wanted[1] > MOST_PIXELS:
            raise DataError(f"an image of {height} x {width} would become {wanted[0]} x {wanted[1]}")
        return np.asarray(opencv().resize(image, wanted[::-1])).reshape(*wanted, image.shape[2])

    def _fill(self, datum: Any, name: str, image: np.ndarray, is_resized: bool) -> None:
        """Write the image into a Datum message, as pixels or as a file, in both cases with its size."""
        datum.height, datum.width, datum.channels = image.shape
        images = self._options.images
        if images.encoded or images.encode_type:
            datum.data = encoded_file(self._root + name, image, images.encode_type, is_resized)
            datum.encoded = True
        else:
            datum.data = np.ascontiguousarray(np.moveaxis(image, -1, 0)).tobytes()

    def _annotate(self, message: Any, path: str, extent: tuple[int, int]) -> None:
        """Write the objects of a file of annotations, grouped by label."""
        if not there(path):
            return
        boxes = READERS[self._options.label_type](path, extent, self._options.labels)
        if beyond(boxes):
            self._options.images.on_bad(f"{path}: a box reaches over the image's edge, or its corners are swapped")
        for label, mine in group(boxes):
            group_of_label = message.annotation_group.add(group_label=label)
            for instance, box in enumerate(mine):
                annotation = group_of_label.annotation.add(instance_id=instance)
                annotation.bbox.xmin, annotation.bbox.ymin, annotation.bbox.xmax, annotation.bbox.ymax = box.corners
                annotation.bbox.difficult = box.difficult
