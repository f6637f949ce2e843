"""Reads databases of AnnotatedDatum records: an image and the objects in it (SSD's fork of Caffe)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.data.augment.objects import Objects
from scaffe.data.records.decode import Colour, decode
from scaffe.data.sources.database import open_database
from scaffe.errors import DataError


@dataclass(frozen=True)
class Annotated:
    """One record.

    Attributes:
        image: uint8 or float32 (height, width, channels), blue first.
        objects: those in it.
        label: of the whole image.
        has_objects: whether the record says what kind of annotations it has.
    """

    image: np.ndarray
    objects: Objects
    label: int
    has_objects: bool


class AnnotatedSource:
    """The AnnotatedDatum records of a database of any kind that gives its records' bytes. Threads may share one object.

    Args:
        path: the database.
        colour: how records that hold image files are decoded.

    Raises:
        DataError: there is no such database.
    """

    def __init__(self, path: str, colour: Colour) -> None:
        self._database: Any = open_database(path, colour)
        self._colour = colour
        if not hasattr(self._database, "value"):
            raise DataError(f"{path}: databases of this kind hold no AnnotatedDatum records")
        self.n_records: int = self._database.n_records

    def read(self, record: int) -> Annotated:
        """The record with this number. Raises DataError if it is no AnnotatedDatum, or its image cannot be decoded."""
        from google.protobuf.message import DecodeError

        from scaffe.proto import caffe_pb2

        try:
            message = caffe_pb2.AnnotatedDatum.FromString(self._database.value(record).tobytes())
        except DecodeError:
            raise DataError(f"{self.name_of(record)} is not an AnnotatedDatum") from None
        return Annotated(self._image(message.datum, record), self._objects(message, record), message.datum.label,
                         message.HasField("type"))

    def name_of(self, record: int) -> str:
        """The database's path and the record's key."""
        return str(self._database.name_of(record))

    def close(self) -> None:
        """Release open files."""
        self._database.close()

    def _image(self, datum: Any, record: int) -> np.ndarray:
        if datum.encoded:
            image = decode(np.frombuffer(datum.data, np.uint8), self._colour)
            if image is None:
                raise DataError(f"{self.name_of(record)} does not hold an image of 8 bits that OpenCV reads")
            return image
        shape = datum.channels, datum.height, datum.width
        values = np.frombuffer(datum.data, np.uint8) if datum.data else np.array(datum.float_data, np.float32)
        if min(shape) < 1 or values.size != shape[0] * shape[1] * shape[2]:
            raise DataError(f"{self.name_of(record)}: {' x '.join(map(str, shape))} values expected, "
                            f"found {values.size}")
        return np.ascontiguousarray(np.moveaxis(values.reshape(shape), 0, -1))

    def _objects(self, message: Any, record: int) -> Objects:
        found = [(group.group_label, one.instance_id, one.bbox) for group in message.annotation_group
                 for one in group.annotation]
        boxes = np.array([(b.xmin, b.ymin, b.xmax, b.ymax) for _, _, b in found], np.float32).reshape(-1, 4)
        if not np.isfinite(boxes).all():
            raise DataError(f"{self.name_of(record)} has a box whose corners are no numbers")
        return Objects(np.array([label for label, _, _ in found], np.int64),
                       np.array([instance for _, instance, _ in found], np.int64), boxes,
                       np.array([b.difficult for _, _, b in found], bool))
