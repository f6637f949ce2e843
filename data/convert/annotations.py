"""Reads annotations of objects in images: PASCAL VOC's and ILSVRC's XML, MS COCO's JSON by image, plain text.

Formats as weiliu89/caffe's ``io.cpp`` reads them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from scaffe.errors import DataError
from scaffe.input_files import read_input

ENCODING = re.compile(rb"""\s*<\?xml[^>]*?encoding\s*=\s*["']([\w.-]{1,40})["']""")
OF_SEVERAL_BYTES = frozenset(("gb2312", "gbk", "gb18030", "cp936", "big5", "big5-hkscs", "cp950", "shift-jis", "sjis",
                              "cp932", "euc-jp", "iso-2022-jp", "euc-kr", "cp949", "hz-gb-2312", "utf-7"))
Extent = tuple[int, int]  # height and width in pixels


@dataclass(frozen=True)
class Box:
    """One object.

    Attributes:
        label: of its class.
        corners: xmin, ymin, xmax, ymax in fractions of the image.
        difficult: hard to recognise, or a crowd.
    """

    label: int
    corners: tuple[float, float, float, float]
    difficult: bool = False


def read_xml(path: str, extent: Extent, labels: Mapping[str, int]) -> list[Box]:
    """The objects of an XML file: ``annotation/object`` with ``name``, ``bndbox`` and perhaps ``difficult``.

    Args:
        path: the file.
        extent: the image's height and width; those in ``annotation/size`` take precedence.
        labels: the classes' labels by name.

    Raises:
        DataError: the file cannot be read or is no XML, or names a class that ``labels`` lacks.
    """
    try:
        root = _tree(_content(path))
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # no such encoding, or other bytes than its own
        raise DataError(f"{path}: not XML: {error}") from None
    size = [_number(path, root.findtext(f"size/{name}") or str(n)) for name, n in zip(("height", "width"), extent,
                                                                                     strict=True)]
    boxes = []
    for thing in root.iter("object"):
        corners = thing.find("bndbox")
        if corners is None:
            raise DataError(f"{path}: an object has no bndbox")
        pixels = [_number(path, corners.findtext(name) or "0") for name in ("xmin", "ymin", "xmax", "ymax")]
        label = _label(path, (thing.findtext("name") or "").strip(), labels)
        boxes.append(Box(label, _fractions(path, pixels, size), (thing.findtext("difficult") or "").strip() == "1"))
    return boxes


def _tree(content: bytes) -> ElementTree.Element:
    """The root of an XML document. Expat knows encodings of one byte a character; others are decoded ahead of it.

    Raises:
        ParseError, LookupError, ValueError: it is none, or of an unknown encoding.
    """
    declared = ENCODING.match(content)
    name = declared[1].decode().lower().replace("_", "-") if declared else ""
    text: str | bytes = content.decode(name) if name in OF_SEVERAL_BYTES else content
    return ElementTree.fromstring(text)  # noqa: S314 - expat limits what entities unpack to


def read_json(path: str, extent: Extent, labels: Mapping[str, int]) -> list[Box]:
    """The objects of a JSON file: {"image": {"height", "width"}, "annotation": [{"category_id", "bbox", "iscrowd"}]}.

    ``bbox`` is x, y, width, height in pixels; a crowd counts as difficult. Arguments and errors as ``read_xml``.
    """
    try:
        content = json.loads(_content(path))
        image = content.get("image", {})
        size = [float(image.get("height", extent[0])), float(image.get("width", extent[1]))]
        boxes = []
        for thing in content["annotation"]:
            x, y, width, height = (float(n) for n in thing["bbox"])
            label = _label(path, str(thing["category_id"]), labels)
            boxes.append(Box(label, _fractions(path, [x, y, x + width, y + height], size),
                             bool(int(thing.get("iscrowd", 0)))))
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise DataError(f"{path}: expected an image's annotations as JSON: {type(error).__name__} "
                        f"{str(error)[:100]}") from None
    return boxes


def read_txt(path: str, extent: Extent, labels: Mapping[str, int]) -> list[Box]:
    """The objects of a text file: ``label xmin ymin xmax ymax`` a line, in pixels; ``labels`` does not count."""
    boxes = []
    for number, line in enumerate(_content(path).decode(errors="replace").splitlines(), 1):
        words = line.split()
        if not words:
            continue
        try:
            label, pixels = int(words[0]), [float(word) for word in words[1:]]
            xmin, ymin, xmax, ymax = pixels
            if not -1 << 31 <= label < 1 << 31:
                raise ValueError
        except ValueError:
            raise DataError(f"{path}:{number}: expected 'label xmin ymin xmax ymax' with a label of 32 bits, found "
                            f"{line[:80]!r}") from None
        boxes.append(Box(label, _fractions(path, [xmin, ymin, xmax, ymax], extent)))
    return boxes


READERS: dict[str, Callable[[str, Extent, Mapping[str, int]], list[Box]]] = {
    "xml": read_xml, "json": read_json, "txt": read_txt}


def group(boxes: list[Box]) -> Iterator[tuple[int, list[Box]]]:
    """(label, its boxes) in the order in which labels first come."""
    groups: dict[int, list[Box]] = {}
    for box in boxes:
        groups.setdefault(box.label, []).append(box)
    yield from groups.items()


def read_label_map(path: str, check: bool = False) -> dict[str, int]:
    """Labels by name, from a prototxt file of a LabelMap.

    Args:
        path: the file.
        check: refuse a name that stands there twice; otherwise its last label counts.

    Raises:
        DataError: a name stands there twice.
        ProtoError: the file is missing or no LabelMap.
    """
    from scaffe.proto import caffe_pb2
    from scaffe.proto.text import read_message

    labels: dict[str, int] = {}
    for item in read_message(path, caffe_pb2.LabelMap).item:
        if check and item.name in labels:
            raise DataError(f"{path}: the name {item.name!r} stands there twice")
        labels[item.name] = item.label
    return labels


def beyond(boxes: list[Box]) -> bool:
    """Whether a box reaches over the image's edge, or has its corners in the wrong order."""
    return any(min(b.corners) < 0 or max(b.corners) > 1 or b.corners[0] > b.corners[2] or b.corners[1] > b.corners[3]
               for b in boxes)


def _content(path: str) -> bytes:
    try:
        return read_input(Path(path))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None


def _label(path: str, name: str, labels: Mapping[str, int]) -> int:
    if name not in labels:
        raise DataError(f"{path}: the label map has no class {name[:80]!r}")
    return labels[name]


def _number(path: str, text: str) -> float:
    """A number of pixels, its fraction cut off."""
    try:
        return float(math.trunc(float(text)))
    except (ValueError, OverflowError):
        raise DataError(f"{path}: expected a number of pixels, found {text[:80]!r}") from None


def _fractions(path: str, pixels: list[float], size: Any) -> tuple[float, float, float, float]:
    height, width = size
    if not (height > 0 and width > 0) or not all(math.isfinite(n) for n in (*pixels, height, width)):
        raise DataError(f"{path}: expected an image of at least 1 x 1 and finite corners, found {height} x {width} and "
                        f"{pixels}")
    return pixels[0] / width, pixels[1] / height, pixels[2] / width, pixels[3] / height
