"""LMDB folders of Datum records."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import lmdb
import numpy as np

from scaffe.data.convert.mean import mean_image
from scaffe.data.records.transform import Transform, TransformOptions
from scaffe.data.sources.database import open_database
from scaffe.data.sources.source import Source
from scaffe.errors import DataError
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.mutators import protobuf
from tests.fuzz.mutators.numbers import whole
from tests.fuzz.records import datums

PAGE = 4096
MOST_RECORDS = 200  # read of a database


def seeds(folder: Path) -> list[Files]:
    """A tree of one leaf, one of two levels, and one with values on pages of their own."""
    found = []
    for number, (n_records, n_bytes) in enumerate([(6, 0), (60, 300), (6, 9000)]):
        path = folder / str(number)
        with lmdb.open(str(path), map_size=1 << 22, lock=False) as env, env.begin(write=True) as transaction:
            for i, record in enumerate(datums(n_records, n_bytes)):
                transaction.put(b"%08d" % i, record)
        found.append({"data.mdb": (path / "data.mdb").read_bytes()})
    return found


def page_field(rng: random.Random, content: bytes) -> bytes:
    """A field of a page's header, a pointer, a node, or a meta page's, set to another page or a number at the edge."""
    n_pages = max(1, len(content) // PAGE)
    page = rng.randrange(n_pages) * PAGE
    at = page + rng.choice([0, 10, 12, 14, *range(16, 40, 2), *range(16, 160, 4)])
    if rng.random() < 0.5 and at + 10 < len(content):  # what a pointer of the page points at
        pointer = struct.unpack_from("<H", content, page + 16 + 2 * rng.randrange(4))[0]
        at = page + pointer + rng.choice([0, 2, 4, 6, 8, 16])
    number = rng.randrange(n_pages + 2) if rng.random() < 0.6 else whole(rng)
    n_bytes = rng.choice([2, 4, 8])
    piece = (number & (1 << 8 * n_bytes) - 1).to_bytes(n_bytes, "little")
    return (content[:at] + piece + content[at + n_bytes:])[:len(content)]


def record(rng: random.Random, content: bytes) -> bytes:
    """A Datum changed as a message, its length kept: what follows it is taken for its end."""
    at = content.find(b"\x08", rng.randrange(len(content)))
    if at < 0:
        return content
    piece = protobuf.mutate(rng, content[at:at + rng.choice([30, 300])])
    return (content[:at] + piece + content[at + len(piece):])[:len(content)]


def read_all(source: Source) -> None:
    """The samples as a net takes them, and their mean; that samples are small, or of other shapes, is nothing."""
    transform = Transform(TransformOptions(mirror=True, crop_size=2, random_crop=True, mean_values=(3.0,)))
    for first in range(0, min(source.n_records, MOST_RECORDS), 7):
        for run in source.read(np.arange(first, min(first + 7, source.n_records))):
            if min(run.shape[1:]) >= transform.options.crop_size:
                channels, height, width = transform.out_shape(run.shape)
                out = np.empty((len(run.starts), height, width, channels), np.float32)
                transform.apply(run, np.ones((len(out), 3), np.uint32), out)
    try:
        if source.n_records < MOST_RECORDS:
            mean_image(source)
    except DataError as error:
        if "the first record" not in str(error):
            raise


def read(folder: Path) -> None:
    """As a Data layer does."""
    read_all(open_database(str(folder)))


KIND = Kind(seeds, read, one_file(page_field, page_field, record))
