"""Writes databases of the kinds of Caffe's ``-backend`` flag; a new folder appears complete or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from scaffe.data.convert.leveldb_writer import write_leveldb
from scaffe.data.convert.whole_folder import make_folder
from scaffe.errors import DataError

RECORDS_PER_COMMIT = 1000  # as Caffe's converters
BYTES_PER_COMMIT = 1 << 26  # records are held in memory until the commit
FIRST_MAP_BYTES = 1 << 24
PROBE_BYTES = 1 << 20


def write_lmdb(path: str | Path, records: Iterable[tuple[bytes, bytes]], force: bool = False) -> int:
    """Write records into a new LMDB folder.

    Args:
        path: the folder to make.
        records: (key, value) pairs in any order; keys have at most 511 bytes.
        force: replace the folder if it exists; without it that is an error, as in Caffe.

    Returns:
        Number of records written.

    Raises:
        DataError: the folder exists or cannot be written, the disk is full, or two records have the same key.
    """
    return make_folder(path, lambda folder: _fill(folder, records), force)


def _fill(folder: Path, records: Iterable[tuple[bytes, bytes]]) -> int:
    import lmdb

    n_records, n_bytes, pending = 0, 0, []
    try:
        with lmdb.open(str(folder), map_size=FIRST_MAP_BYTES, lock=False, sync=False, readahead=False) as env:
            for record in records:
                pending.append(record)
                n_bytes += len(record[1])
                if len(pending) == RECORDS_PER_COMMIT or n_bytes > BYTES_PER_COMMIT:
                    n_records, n_bytes = n_records + _commit(env, pending), 0
            n_records += _commit(env, pending)
            env.sync(True)
    except lmdb.Error as error:
        raise _reason(folder, error) from None
    (folder / "lock.mdb").touch()  # Caffe's own reader opens with locks
    return n_records


def _reason(folder: Path, error: Exception) -> OSError:
    """Why LMDB could not write. It calls a full disk an input/output error, so another write is tried to find out."""
    try:
        with (folder / "data.mdb").open("ab") as file:
            file.write(bytes(PROBE_BYTES))
    except OSError as found:
        return found
    return OSError(str(error).rpartition(": ")[2])


def _commit(env: Any, pending: list[tuple[bytes, bytes]]) -> int:
    """Write the pending records in one transaction, doubling the map until they fit; empties the list."""
    import lmdb

    while True:
        try:
            with env.begin(write=True) as transaction:
                for key, value in pending:
                    if not transaction.put(key, value, overwrite=False):
                        raise DataError(f"two records have the key {key.decode(errors='replace')!r}")
            break
        except lmdb.MapFullError:
            env.set_mapsize(2 * env.info()["map_size"])
    n_records = len(pending)
    pending.clear()
    return n_records


Writer = Callable[[str | Path, Iterable[tuple[bytes, bytes]], bool], int]
WRITERS: dict[str, Writer] = {"lmdb": write_lmdb, "leveldb": write_leveldb}


def writer_of(backend: str) -> Writer:
    """The function (path, records, force) that writes this kind of database. Raises DataError if unknown."""
    if backend not in WRITERS:
        raise DataError(f"databases are of the kinds {' and '.join(WRITERS)}, got {backend!r}")
    return WRITERS[backend]
