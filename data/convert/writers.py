"""The kinds of database that tools can write, under the names of Caffe's ``-backend`` flag."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from scaffe.data.convert.leveldb_writer import write_leveldb
from scaffe.data.convert.lmdb_writer import write_lmdb
from scaffe.data.errors import DataError

Writer = Callable[[str | Path, Iterable[tuple[bytes, bytes]], bool], int]
WRITERS: dict[str, Writer] = {"lmdb": write_lmdb, "leveldb": write_leveldb}


def writer_of(backend: str) -> Writer:
    """The function (path, records, force) that writes this kind of database. Raises DataError if unknown."""
    if backend not in WRITERS:
        raise DataError(f"databases are of the kinds {' and '.join(WRITERS)}, got {backend!r}")
    return WRITERS[backend]
