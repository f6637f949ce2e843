"""Writes a new LevelDB folder: one table file and its manifest (LevelDB's table_format.md, log_format.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from scaffe.data.convert.whole_folder import make_folder
from scaffe.data.sources.leveldb_format import COMPARATOR, FOOTER, FULL, MAGIC, VALUE
from scaffe.errors import DataError

Handle = tuple[int, int]  # offset and length of a block
BLOCK_BYTES = 4096
TABLE, MANIFEST, LOG_NUMBER, NEXT_NUMBER = 5, 2, 3, 6  # file numbers
LEVEL = 6  # the last of LevelDB's levels
CRC_MASK = 0xA282EAD8


def write_leveldb(path: str | Path, records: Iterable[tuple[bytes, bytes]], force: bool = False) -> int:
    """Write records into a new LevelDB folder.

    Args:
        path: the folder to make.
        records: (key, value) pairs in ascending order of keys.
        force: replace the folder if it exists; without it that is an error, as in Caffe.

    Returns:
        Number of records written.

    Raises:
        DataError: the folder exists or cannot be written, keys do not ascend, or there are no records.
    """
    return make_folder(path, lambda folder: _fill(folder, records), force)


def _fill(folder: Path, records: Iterable[tuple[bytes, bytes]]) -> int:
    with (folder / f"{TABLE:06d}.sst").open("wb") as file:
        table = _Table(file)
        for key, value in records:
            table.add(key, value)
        n_bytes = table.finish()
    edit = b"".join((_tagged(1, _string(COMPARATOR)), _tagged(2, _varint(LOG_NUMBER)), _tagged(9, _varint(0)),
                     _tagged(3, _varint(NEXT_NUMBER)), _tagged(4, _varint(table.n_records)),
                     _tagged(7, _varint(LEVEL) + _varint(TABLE) + _varint(n_bytes) + _string(table.first)
                             + _string(table.last))))
    head = struct.pack("<HB", len(edit), FULL)
    (folder / f"MANIFEST-{MANIFEST:06d}").write_bytes(_checksum(bytes([FULL]) + edit) + head + edit)
    (folder / "CURRENT").write_text(f"MANIFEST-{MANIFEST:06d}\n")
    return table.n_records


class _Table:
    """Writes a table file: blocks of records, an index of them, the footer.

    Attributes:
        n_records: written so far.
        first, last: keys of the first and the last record as stored, with 8 bytes of sequence number and kind.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._at = file, 0
        self._block, self._index = _Block(), _Block()
        self.n_records = 0
        self.first = self.last = b""

    def add(self, key: bytes, value: bytes) -> None:
        """Write one record. Raises DataError if its key is not greater than the last one."""
        if self.n_records and key <= self.last[:-8]:
            raise DataError(f"key {key.decode(errors='replace')!r} does not come after "
                            f"{self.last[:-8].decode(errors='replace')!r}; a LevelDB is written in the order of keys")
        self.n_records += 1
        self.last = key + struct.pack("<Q", self.n_records << 8 | VALUE)
        self.first = self.first or self.last
        self._block.add(self.last, value)
        if self._block.n_bytes >= BLOCK_BYTES:
            self._end_block()

    def finish(self) -> int:
        """Write index and footer. Returns the file's length in bytes. Raises DataError if there are no records."""
        if not self.n_records:
            raise DataError("there are no records to write")
        self._end_block()
        others = self._write(_Block())
        index = self._write(self._index)
        handles = b"".join(_varint(number) for handle in (others, index) for number in handle)
        self._file.write(handles.ljust(FOOTER - 8, b"\0") + struct.pack("<Q", MAGIC))
        return self._at + FOOTER

    def _end_block(self) -> None:
        if self._block.n_bytes:
            offset, n_bytes = self._write(self._block)
            self._index.add(self.last, _varint(offset) + _varint(n_bytes))
            self._block = _Block()

    def _write(self, block: _Block) -> Handle:
        content = block.content()
        handle = self._at, len(content)
        content += b"\0"  # not compressed
        content += _checksum(content)
        self._file.write(content)
        self._at += len(content)
        return handle


class _Block:
    """A block: entries with whole keys (no shared prefixes), then the offset of each entry."""

    def __init__(self) -> None:
        self._entries: list[bytes] = []
        self._starts: list[int] = []
        self.n_bytes = 0

    def add(self, key: bytes, value: bytes) -> None:
        entry = b"\0" + _varint(len(key)) + _varint(len(value)) + key + value
        self._starts.append(self.n_bytes)
        self._entries.append(entry)
        self.n_bytes += len(entry)

    def content(self) -> bytes:
        starts = self._starts or [0]
        return b"".join(self._entries) + struct.pack(f"<{len(starts) + 1}I", *starts, len(starts))


def _checksum(content: bytes) -> bytes:
    """CRC-32C as LevelDB stores it: rotated right by 15 bits, plus CRC_MASK."""
    from scaffe.data.kernels.leveldb import crc32c

    crc = int(crc32c(np.frombuffer(content, np.uint8)))
    return struct.pack("<I", ((crc >> 15 | crc << 17) + CRC_MASK) & 0xFFFFFFFF)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def _string(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _tagged(tag: int, content: bytes) -> bytes:
    return _varint(tag) + content
