"""LevelDB folders of Datum records."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import plyvel

from scaffe.data.sources.leveldb import LevelDbSource
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, files_of, one_file
from tests.fuzz.kinds.lmdb import read_all
from tests.fuzz.mutators.numbers import packed
from tests.fuzz.records import datums

KEPT = ("CURRENT", "MANIFEST", ".ldb", ".log")


def seeds(folder: Path) -> list[Files]:
    """A log; a table and a log; a table that is not compressed."""
    found = []
    for number, (compression, reopened) in enumerate([("snappy", 0), ("snappy", 2), (None, 2)]):
        path = folder / str(number)
        for _ in range(1 + reopened):
            with plyvel.DB(str(path), create_if_missing=True, compression=compression, block_size=1024) as db:
                for i, record in enumerate(datums(30)):
                    db.put(b"%08d" % i, record)
                db.delete(b"00000003")
        found.append({name: content for name, content in files_of(path).items() if name.startswith(KEPT[:2])
                      or name.endswith(KEPT[2:])})
    return found


def log_head(rng: random.Random, content: bytes) -> bytes:
    """The head of a log's record: length and kind."""
    at = 0
    for _ in range(rng.randrange(4)):
        if at + 7 < len(content):
            at += 7 + struct.unpack_from("<H", content, at + 4)[0]
    piece = packed(rng, 2) + bytes([rng.randrange(6)])
    return content[:at + 4] + piece + content[at + 7:]


def footer(rng: random.Random, content: bytes) -> bytes:
    """The handles of a table's index, or what its index says."""
    at = len(content) - rng.choice([rng.randrange(1, 49), rng.randrange(1, 400)])
    return content[:max(0, at)] + packed(rng, rng.choice([1, 1, 2, 4])) + content[at + 1:]


def read(folder: Path) -> None:
    """As a Data layer and convert_leveldb do."""
    source = LevelDbSource(folder)
    for _ in source.items():
        pass
    read_all(source)


KIND = Kind(seeds, read, one_file(log_head, footer))
