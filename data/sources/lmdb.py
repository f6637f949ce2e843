"""Reads an LMDB database by record number from a memory map, without locks and without the GIL.

Opening walks the B+tree once and keeps the offset of every record (8 bytes each). Overflow pages, which hold large
values, are not touched. Any number of threads and processes may read at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.data.records.datum import datum_files, datum_runs
from scaffe.data.records.decode import Colour
from scaffe.data.sources.database import database_kind
from scaffe.data.sources.source import Run
from scaffe.errors import DataError
from scaffe.input_files import open_input
from scaffe.mapped_files import mapped_input

KEY_BYTES_TOLD = 511  # most bytes of a key in a message: LMDB's longest key
MAGIC, FORMAT = 0xBEEFC0DE, 1
# after a page header: magic, format, address, map bytes; two trees (free list, records); last page, transaction
META = struct.Struct("<IIQQ" + 2 * "IHHQQQQQ" + "QQ")
HEADER = 16
PAGE_BYTES = [1 << n for n in range(8, 17)]
NO_PAGE = (1 << 64) - 1
DUPSORT_FLAGS = 0x04 | 0x10 | 0x20 | 0x40
WHY = {-1: "the file is cut short", -2: "the file is damaged",
       -3: "duplicate keys and named databases are not supported"}


def is_lmdb(path: Path) -> bool:
    """Whether a path is the folder of an LMDB environment, or an LMDB data file."""
    try:
        with open_input(data_file(path)) as file:
            return file.read(HEADER + 4)[HEADER:] == MAGIC.to_bytes(4, "little")
    except OSError:
        return False


def data_file(path: Path) -> Path:
    """The file that holds the records: ``path`` itself, or ``data.mdb`` in it if it is a folder."""
    return path / "data.mdb" if path.is_dir() else path


class LmdbFile:
    """Keys and values of the main database of an LMDB environment. Records are numbered in key order.

    Args:
        path: the environment's folder, or its data file.

    Attributes:
        bytes: uint8, the whole file, mapped read-only.
        page_bytes: length of a page.
        nodes: int64 (n_records,), offset in ``bytes`` of each record's leaf node, in key order.

    Raises:
        DataError: there is no database, it is not an LMDB, or it is truncated, damaged or empty.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        file = data_file(self.path)
        self.bytes = _map(file, self.path)
        self.page_bytes, root, n_records, last_page = self._meta()
        if n_records == 0:
            raise DataError(f"{self.path}: the database is empty")
        if self.bytes.size < (last_page + 1) * self.page_bytes:
            raise DataError(f"{self.path}: cut short: expected at least {(last_page + 1) * self.page_bytes} bytes in "
                            f"{file.name}, found {self.bytes.size}")
        self.nodes = self._walk(root, n_records)

    def __len__(self) -> int:
        return len(self.nodes)

    def key(self, place: int) -> bytes:
        """The key of the record with this number."""
        node = int(self.nodes[place])
        n_bytes = int.from_bytes(self.bytes[node + 6:node + 8].tobytes(), "little")
        return self.bytes[node + 8:node + 8 + n_bytes].tobytes()

    def spans(self, places: np.ndarray) -> np.ndarray:
        """Find the values of records.

        Args:
            places: int64 (n,), record numbers.

        Returns:
            int64 (n, 2), start and length of each value in ``bytes``.

        Raises:
            DataError: a value cannot be found because the file is damaged; the message gives the key.
        """
        from scaffe.data.kernels.btree import value_spans

        spans = np.empty((len(places), 2), np.int64)
        bad = value_spans(self.bytes, self.page_bytes, self.nodes[places], spans)
        if bad >= 0:
            key = self.key(int(places[bad]))[:KEY_BYTES_TOLD].decode(errors="replace")
            raise DataError(f"{self.path}: record {key!r}: {WHY[int(spans[bad, 1])]}")
        return spans

    def value(self, place: int) -> np.ndarray:
        """The value of the record with this number: uint8, a view of ``bytes``. Raises DataError like ``spans``."""
        start, n_bytes = self.spans(np.array([place]))[0]
        return self.bytes[start:start + n_bytes]

    def _meta(self) -> tuple[int, int, int, int]:
        """Page length, root page, number of records and last page, from the newer of the two meta pages."""
        first = self._meta_at(0)
        if first is None or first[:2] != (MAGIC, FORMAT):
            found = f"format {first[1]}" if first and first[0] == MAGIC else "something else"
            raise DataError(f"{self.path}: expected an LMDB database of format {FORMAT}, found {found}")
        page_bytes = first[4]
        if page_bytes not in PAGE_BYTES:
            raise DataError(f"{self.path}: {WHY[-2]}: pages of {page_bytes} bytes")
        second = self._meta_at(page_bytes)
        newest = second if second and second[:2] == (MAGIC, FORMAT) and second[-1] > first[-1] else first
        flags, n_records, root, last_page = newest[13], newest[18], newest[19], newest[20]
        if flags & DUPSORT_FLAGS:
            raise DataError(f"{self.path}: {WHY[-3]}")
        return page_bytes, root, 0 if root == NO_PAGE else n_records, last_page

    def _meta_at(self, page: int) -> tuple[int, ...] | None:
        end = page + HEADER + META.size
        return META.unpack(self.bytes[page + HEADER:end].tobytes()) if end <= self.bytes.size else None

    def _walk(self, root: int, n_records: int) -> np.ndarray:
        from scaffe.data.kernels.btree import walk

        if n_records > self.bytes.size // 8:
            raise DataError(f"{self.path}: {WHY[-2]}: {n_records} records do not fit into {self.bytes.size} bytes")
        nodes = np.empty(n_records, np.int64)
        if root >= self.bytes.size // self.page_bytes:
            raise DataError(f"{self.path}: {WHY[-1]}")
        n_found = walk(self.bytes, self.page_bytes, root, nodes)
        if n_found != n_records:
            raise DataError(f"{self.path}: {WHY.get(n_found, f'expected {n_records} records, found {n_found}')}")
        return nodes


def _map(file: Path, path: Path) -> np.ndarray:
    try:
        with open_input(file) as handle:
            if not path.stat() or not file.stat().st_size:
                raise DataError(f"{path}: {file.name} has no bytes")
            return mapped_input(handle, file)
    except FileNotFoundError:
        what = f"has no {file.name}; is it an LMDB folder?" if path.exists() else "no such file or folder"
        raise DataError(f"{path}: {what}") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None


@database_kind("lmdb", is_lmdb)
class LmdbSource:
    """The Datum records of an LMDB folder. Records are numbered in key order.

    Raw pixels are not copied: a batch of them is one run in the mapped file.

    Args:
        path: the folder, or its data file.
        colour: how records that hold image files are decoded.

    Raises:
        DataError: the database cannot be opened (see ``LmdbFile``). ``read`` raises it for a record that is not a
            complete Datum; the message gives its key.
    """

    def __init__(self, path: str | Path, colour: Colour = Colour.AS_STORED) -> None:
        self._file, self._colour = LmdbFile(path), colour
        self.n_records = len(self._file)

    def read(self, records: np.ndarray) -> Iterator[Run]:
        """The samples of these records; one run if all are raw pixels of one shape."""
        spans = self._file.spans(records)
        yield from datum_runs(self._file.bytes, spans, _Names(self, records), self._colour)

    def files(self, records: np.ndarray) -> tuple[list[np.ndarray | None], np.ndarray]:
        """The image files in these records, which are not copied, and their labels."""
        return datum_files(self._file.bytes, self._file.spans(records), self._colour)

    def value(self, record: int) -> np.ndarray:
        """The bytes of one record, uint8. Raises DataError if the file is damaged there."""
        return self._file.value(record)

    def name_of(self, record: int) -> str:
        """The database's path and the record's key."""
        return f"{self._file.path}: record {self._file.key(record)[:KEY_BYTES_TOLD].decode(errors='replace')!r}"

    def close(self) -> None:
        """Nothing to do: the file is unmapped when the last array in it is freed."""


class _Names(Sequence[str]):
    """The names of records, made only when an error message needs one."""

    def __init__(self, source: LmdbSource, records: np.ndarray) -> None:
        self._source, self._records = source, records

    def __getitem__(self, index: Any) -> Any:
        return self._source.name_of(int(self._records[index]))

    def __len__(self) -> int:
        return len(self._records)
