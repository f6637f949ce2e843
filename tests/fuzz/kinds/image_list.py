"""Lists of images with labels, and the image files: PNG, JPEG, BMP."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np

from scaffe.data.feeds.layer_feed import TRAIN, ReaderOptions, Share, open_layer_feed
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.kinds.windows import number
from tests.fuzz.layers import draw, layer
from tests.fuzz.mutators.messages import spoil
from tests.fuzz.mutators.numbers import packed

NAMES = ("a.png", "b.jpg", "c.bmp", "d.png")


def seeds(folder: Path) -> list[Files]:
    """Four images in three formats, grey ones too."""
    rng = np.random.default_rng(0)
    files = {name: bytes(cv2.imencode(name[1:], rng.integers(0, 255, (9, 8, 3 if i < 3 else 1), np.uint8))[1])
             for i, name in enumerate(NAMES)}
    return [{"list": "".join(f"{name} {i}\n" for i, name in enumerate(NAMES)).encode(), **files}]


def png_chunk(rng: random.Random, content: bytes) -> bytes:
    """A number of a PNG's head with the checksum made right, or a long stretch of nothing in it."""
    if not content.startswith(b"\x89PNG") or len(content) < 40:
        return content[::-1]
    at = 16 + rng.choice([0, 4, 8, 9, 10, 11, 12])
    content = content[:at] + packed(rng, rng.choice([1, 4])) + content[at + 1:]
    head = content[12:29]
    content = content[:29] + struct.pack(">I", zlib.crc32(head)) + content[33:]
    if rng.random() < 0.2:
        rows = zlib.compress(bytes(1 << 20))
        body = b"IDAT" + rows
        chunk = struct.pack(">I", len(rows)) + body + struct.pack(">I", zlib.crc32(body))
        content = content[:33] + chunk + content[33:]
    return content


def read(folder: Path) -> None:
    """As ImageData does."""
    for wishes in ("new_height: 5 new_width: 6", "shuffle: true is_color: false"):
        param = layer(f'type: "ImageData" image_data_param {{ source: "{folder}/list" batch_size: 1 {wishes} '
                      f'root_folder: "{folder}/" }}')
        feed = open_layer_feed(param, TRAIN, Share(), draw, ReaderOptions(0))
        for _ in range(5):
            feed.next()


KIND = Kind(seeds, read, one_file(number, spoil, png_chunk, png_chunk))
