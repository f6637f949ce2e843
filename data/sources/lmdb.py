"""Reads Caffe's LMDB databases: Datum records in key order (Caffe 1.0, DataLayer)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.data.records.datum_runs import datum_runs
from scaffe.data.records.decode import Colour
from scaffe.data.sources.database import database_kind
from scaffe.data.sources.lmdb_file import KEY_BYTES_TOLD, LmdbFile, is_lmdb
from scaffe.data.sources.source import Run


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
