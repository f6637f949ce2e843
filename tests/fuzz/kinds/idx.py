"""MNIST's archives, plain and gzipped."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from pathlib import Path

from scaffe.data.records.idx import read_idx
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.mutators.numbers import packed
from tests.fuzz.mutators.plain import write_number


def seeds(folder: Path) -> list[Files]:
    """Five images of 4 x 4 and their labels."""
    images = struct.pack(">4I", 0x803, 5, 4, 4) + bytes(range(80))
    labels = struct.pack(">2I", 0x801, 5) + bytes(range(5))
    return [{"images": images, "labels": labels},
            {"images": gzip.compress(images, mtime=0), "labels": gzip.compress(labels, mtime=0)}]


def head(rng: random.Random, content: bytes) -> bytes:
    """A number of the head; a gzipped file is packed anew, sometimes with a lot of nothing behind."""
    at = 4 * rng.randrange(4)
    if not content.startswith(b"\x1f\x8b"):
        return content[:at] + packed(rng, 4) + content[at + 4:]
    try:
        plain = zlib.decompressobj(31).decompress(content, 1 << 20)
    except zlib.error:
        return write_number(rng, content)
    plain = plain[:at] + packed(rng, 4) + plain[at + 4:] + bytes(rng.choice([0, 0, 0, 1, 1 << 24]))
    return gzip.compress(plain, mtime=0)


def read(folder: Path) -> None:
    """Both files."""
    read_idx(folder / "images", 3)
    read_idx(folder / "labels", 1)


KIND = Kind(seeds, read, one_file(head))
