"""Caffe's LMDB: Datum records in key order (Caffe 1.0, DataLayer)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data.decode import Colour, decode, run_of
from data.errors import DataError
from data.run import Run
from data.sources.lmdb_file import WHY, LmdbFile


class LmdbSource:
    """The Datum records of an LMDB folder, by their place in key order.

    Raw pixels are not copied: a batch of them is one run over the mapped file.

    Args:
        path: the folder, or its data file.
        colour: what to make of records that hold image files.

    Raises:
        DataError: as LmdbFile; ``read`` raises it for a record that is not a whole Datum, naming its key.
    """

    def __init__(self, path: str | Path, colour: Colour = Colour.AS_STORED) -> None:
        self._file, self._colour = LmdbFile(path), colour
        self.n_records = len(self._file)

    def read(self, records: np.ndarray) -> Iterator[Run]:
        """The samples of these records, one run where shapes and kinds are alike."""
        from data.kernels import datum_fields as f

        table = np.empty((len(records), f.N_COLUMNS), np.int64)
        f.find_fields(self._file.bytes, self._file.page_bytes, self._file.nodes[records], table)
        kinds = table[:, [f.CHANNELS, f.HEIGHT, f.WIDTH, f.N_FLOATS, f.ENCODED, f.N_DATA]]
        alike = len(records) > 0 and not table[:, f.STATUS].any() and not (kinds != kinds[0]).any()
        if alike and table[0, f.N_DATA] and not table[0, f.ENCODED]:
            yield self._raw(table, records)
        else:
            for i in range(len(records)):
                yield self._one(table[i:i + 1], records[i:i + 1])

    def name_of(self, record: int) -> str:
        """The path and the key."""
        return f"{self._file.path}: record {self._file.key(record).decode(errors='replace')!r}"

    def close(self) -> None:
        """The map goes with the last array over it."""

    def _raw(self, table: np.ndarray, records: np.ndarray) -> Run:
        """Uncompressed pixels, where they lie."""
        from data.kernels import datum_fields as f

        shape = self._shape(table[0], records[0])
        self._check_length(shape, table[0, f.N_DATA], records[0])
        return Run(self._file.bytes, table[:, f.DATA].copy(), table[:, f.LABEL], shape)

    def _one(self, table: np.ndarray, records: np.ndarray) -> Run:
        """One record of whatever kind."""
        from data.kernels import datum_fields as f

        row = table[0]
        if row[f.STATUS]:
            raise DataError(f"{self.name_of(records[0])} is not a Datum: {WHY[int(row[f.STATUS])]}")
        if row[f.ENCODED]:
            start = row[f.DATA]
            image = decode(self._file.bytes[start:start + row[f.N_DATA]], self._colour)
            if image is None:
                raise DataError(f"{self.name_of(records[0])} does not hold an image of 8 bits that OpenCV reads")
            return run_of(image, int(row[f.LABEL]))
        if row[f.N_DATA]:
            return self._raw(table, records)
        shape = self._shape(row, records[0])
        self._check_length(shape, row[f.N_FLOATS], records[0])
        floats = np.empty(int(row[f.N_FLOATS]), np.float32)
        f.read_floats(self._file.bytes, row[f.VALUE], row[f.N_VALUE], floats.view(np.uint8))
        floats.flags.writeable = False
        return Run(floats, np.zeros(1, np.int64), table[:, f.LABEL], shape)

    def _shape(self, row: np.ndarray, record: int) -> tuple[int, int, int]:
        channels, height, width = (int(n) for n in row[1:4])
        if min(channels, height, width) < 1:
            raise DataError(f"{self.name_of(record)} has the shape {channels} x {height} x {width}")
        return channels, height, width

    def _check_length(self, shape: tuple[int, int, int], n_found: int, record: int) -> None:
        if n_found != shape[0] * shape[1] * shape[2]:
            raise DataError(f"{self.name_of(record)}: {' x '.join(map(str, shape))} values expected, found {n_found}")
