"""Reads Caffe's LevelDB databases. Any number of processes may read at once, unlike with LevelDB's own library.

Keys are inside compressed blocks, so opening reads the whole database once. ``convert_leveldb`` converts a large one to
an LMDB, which opens fast.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from scaffe import forking
from scaffe.data.records.datum import datum_files, datum_runs
from scaffe.data.records.decode import Colour
from scaffe.data.sources import leveldb_format as form
from scaffe.data.sources.database import database_kind
from scaffe.data.sources.source import Run
from scaffe.errors import DataError
from scaffe.input_files import open_input
from scaffe.mapped_files import mapped_input

KEY_BYTES_TOLD = 511  # most bytes of a key in a message
FILES_KEPT = 256  # most files mapped at a time
Place = tuple[int, int, int, int, int]  # file, offset and length of the block, start and end of the value in it
CRC_BYTES = 5  # after a block: one byte for its compression, four of checksum
PLAIN, SNAPPY = 0, 1


@database_kind("leveldb", lambda path: (path / "CURRENT").exists())
class LevelDbSource:
    """The Datum records of a LevelDB folder. Records are numbered in key order.

    Args:
        path: the folder.
        colour: how records that hold image files are decoded.

    Raises:
        DataError: the folder is not a complete LevelDB, has no records, or uses another compression than Snappy.
            ``read`` raises it for a record that is not a complete Datum; the message gives its key.
    """

    def __init__(self, path: str | Path, colour: Colour = Colour.AS_STORED) -> None:
        self._path, self._colour = Path(path), colour
        self._files = _Files(self._path)
        entries: dict[bytes, tuple[int, Place | None]] = {}
        for key, sequence, place in self._all_entries():
            if key not in entries or entries[key][0] <= sequence:
                entries[key] = sequence, place
        kept = sorted((key, place) for key, (_, place) in entries.items() if place is not None)
        if not kept:
            raise DataError(f"{self._path}: the database is empty")
        self._keys = [key for key, _ in kept]
        self._places = np.array([place for _, place in kept], np.int64)
        self.n_records = len(kept)

    def read(self, records: np.ndarray) -> Iterator[Run]:
        """The samples of these records, copied into one array."""
        names = [self.name_of(int(record)) for record in records]
        yield from datum_runs(*self._gathered(records), names, self._colour)

    def files(self, records: np.ndarray) -> tuple[list[np.ndarray | None], np.ndarray]:
        """The image files in these records, copied into one array, and their labels."""
        return datum_files(*self._gathered(records), self._colour)

    def _gathered(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Records in one array, and the start and length of each. Neighbours in one block unpack it once."""
        places = self._places[records]
        spans = np.zeros((len(records), 2), np.int64)
        spans[:, 1] = places[:, 4] - places[:, 3]
        spans[1:, 0] = np.cumsum(spans[:-1, 1])
        gathered = np.empty(int(spans[:, 1].sum()), np.uint8)
        last, block = None, np.empty(0, np.uint8)
        for (file, offset, n_bytes, start, end), (to, n) in zip(places.tolist(), spans.tolist(), strict=True):
            if (file, offset) != last:
                last, block = (file, offset), self._block(file, offset, n_bytes)
            gathered[to:to + n] = block[start:end]
        gathered.flags.writeable = False
        return gathered, spans

    def value(self, record: int) -> np.ndarray:
        """The bytes of one record, uint8. Raises DataError if the database is damaged there."""
        file, offset, n_bytes, start, end = self._places[record].tolist()
        return self._block(file, offset, n_bytes)[start:end]

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All (key, value) pairs, in key order. Raises DataError if the database is damaged."""
        last, block = None, np.empty(0, np.uint8)
        for key, (file, offset, n_bytes, start, end) in zip(self._keys, self._places.tolist(), strict=True):
            if (file, offset) != last:
                last, block = (file, offset), self._block(file, offset, n_bytes)
            yield key, block[start:end].tobytes()

    def name_of(self, record: int) -> str:
        """The database's path and the record's key."""
        return f"{self._path}: record {self._keys[record][:KEY_BYTES_TOLD].decode(errors='replace')!r}"

    def close(self) -> None:
        """Nothing to do: files are unmapped when the last array in them is freed."""

    def _block(self, file: int, offset: int, n_bytes: int) -> np.ndarray:
        try:
            return self._files.block(file, offset, n_bytes)
        except form.FormatError as error:
            raise DataError(f"{self._path}: file {file:06d}: {error}") from None

    def _all_entries(self) -> Iterator[tuple[bytes, int, Place | None]]:
        """(key, sequence number, place) of every entry of every live file; place is None for a deletion."""
        for number in self._files.numbers:
            try:
                yield from self._files.entries(number)
            except form.FormatError as error:
                raise DataError(f"{self._path}: file {number:06d}: {error}") from None


class _Files:
    """The live tables and logs of a folder, tables mapped when needed. Threads share one object."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        live = self._live()
        self._logs: dict[int, np.ndarray] = {}
        for path in folder.glob("*.log"):
            number = int(path.stem) if path.stem.isdigit() else -1
            if number >= live.first_log or number == live.previous_log != 0:
                self._logs[number] = self._log(path)
        self.numbers = sorted(live.tables) + sorted(self._logs)
        self._maps: OrderedDict[int, np.ndarray] = OrderedDict()
        self._lock = forking.Lock()

    def block(self, number: int, offset: int, n_bytes: int) -> np.ndarray:
        """An uncompressed block, uint8. Raises FormatError."""
        from scaffe.data.kernels.leveldb import uncompress, uncompressed_bytes

        file = self._bytes(number)
        if offset + n_bytes + (0 if number in self._logs else CRC_BYTES) > file.size:
            raise form.FormatError("cut short")
        if number in self._logs or file[offset + n_bytes] == PLAIN:
            return file[offset:offset + n_bytes]
        if file[offset + n_bytes] != SNAPPY:
            raise form.FormatError(f"compression {file[offset + n_bytes]} is not supported")
        n_out = uncompressed_bytes(file, offset, offset + n_bytes)
        if n_out < 0 or n_out > 256 * n_bytes:
            raise form.FormatError("a compressed block is damaged")
        out = np.empty(n_out, np.uint8)
        if uncompress(file, offset, offset + n_bytes, out):
            raise form.FormatError("a compressed block is damaged")
        return out

    def entries(self, number: int) -> Iterator[tuple[bytes, int, Place | None]]:
        """(key, sequence number, place) of each entry of a file; place is None for a deletion. Raises FormatError."""
        if number in self._logs:
            yield from self._log_entries(number)
            return
        offset, n_bytes = form.index_block(self._bytes(number)[-form.FOOTER:].tobytes())
        index = self.block(number, offset, n_bytes).tobytes()
        free = 0  # end of the last block
        for _, start, end in form.block_entries(index):
            offset, at = form.varint(index[start:end], 0)
            n_bytes, _ = form.varint(index[start:end], at)
            if offset < free:
                raise form.FormatError("blocks overlap")
            free = offset + n_bytes
            for key, first, last in form.block_entries(self.block(number, offset, n_bytes).tobytes()):
                key, sequence, kind = form.split_key(key)
                yield key, sequence, (number, offset, n_bytes, first, last) if kind == form.VALUE else None

    def _log_entries(self, number: int) -> Iterator[tuple[bytes, int, Place | None]]:
        """The entries of a log, as ``entries``; in memory each of its batches follows its length (int64)."""
        log, at = self._logs[number], 0
        while at < log.size:
            n_bytes = int(log[at:at + 8].view(np.int64)[0])
            batch = log[at + 8:at + 8 + n_bytes].tobytes()
            for key, sequence, kind, start, end in form.batch_entries(batch):
                yield key, sequence, (number, at + 8, n_bytes, start, end) if kind == form.VALUE else None
            at += 8 + n_bytes

    def _log(self, path: Path) -> np.ndarray:
        batches = form.log_records(self._read(path))
        return np.frombuffer(b"".join(len(b).to_bytes(8, "little") + b for b in batches), np.uint8)

    def _live(self) -> form.LiveFiles:
        name = self._read(self._folder / "CURRENT").decode(errors="replace").strip()
        if not name.startswith("MANIFEST-") or "/" in name or not name.isprintable():
            raise DataError(f"{self._folder}: CURRENT must name a MANIFEST, it names {name[:80]!r}")
        try:
            return form.live_files(self._read(self._folder / name))
        except form.FormatError as error:
            raise DataError(f"{self._folder}: {name}: {error}") from None

    def _bytes(self, number: int) -> np.ndarray:
        """The bytes of a file: a mapped table, or the batches of a log."""
        if number in self._logs:
            return self._logs[number]
        with self._lock:
            if number not in self._maps:
                self._maps[number] = self._map(number)
                if len(self._maps) > FILES_KEPT:
                    self._maps.popitem(last=False)
            self._maps.move_to_end(number)
            return self._maps[number]

    def _map(self, number: int) -> np.ndarray:
        for ending in ("ldb", "sst"):
            path = self._folder / f"{number:06d}.{ending}"
            if path.exists():
                with self._opened(path) as file:
                    if file.seek(0, 2) < form.FOOTER:
                        raise form.FormatError("cut short")
                    return mapped_input(file, path)
        raise DataError(f"{self._folder}: table {number:06d} is missing")

    def _read(self, path: Path) -> bytes:
        with self._opened(path) as file:
            return file.read()

    def _opened(self, path: Path) -> BinaryIO:
        try:
            return open_input(path)
        except OSError as error:
            raise DataError(f"{path}: {error.strerror or error}") from None
