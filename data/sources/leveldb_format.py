"""Parses the bytes of LevelDB's files (table_format.md, log_format.md and impl.md of Google's LevelDB)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

LOG_BLOCK, LOG_HEADER = 32768, 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4  # kinds of log fragments
DELETION, VALUE = 0, 1
KEY_BYTES_PER_BYTE = 64  # limit for a block's unpacked keys; LevelDB writes every 16th key whole
FOOTER, MAGIC = 48, 0xDB4775248B80FB57
COMPARATOR = b"leveldb.BytewiseComparator"


class FormatError(ValueError):
    """The bytes do not follow the format. The caller adds the file's name."""


def varint(content: bytes, at: int) -> tuple[int, int]:
    """The varint at offset ``at``, and the offset after it. Raises FormatError."""
    value = shift = 0
    while True:
        if at >= len(content) or shift > 63:
            raise FormatError("a number breaks off")
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def string(content: bytes, at: int) -> tuple[int, int]:
    """Start and end of the length-prefixed string at offset ``at``. Raises FormatError."""
    n_bytes, at = varint(content, at)
    if at + n_bytes > len(content):
        raise FormatError("a string breaks off")
    return at, at + n_bytes


def log_records(content: bytes) -> Iterator[bytes]:
    """The records of a log file. An incomplete last record was never fully written and is left out, as in LevelDB."""
    parts: list[bytes] | None = None  # fragments of the record being read
    at = 0
    while at + LOG_HEADER <= len(content):
        left = LOG_BLOCK - at % LOG_BLOCK
        if left < LOG_HEADER:
            at += left
            continue
        n_bytes, kind = struct.unpack_from("<HB", content, at + 4)
        start, at = at + LOG_HEADER, at + LOG_HEADER + n_bytes
        if kind == 0 or at > len(content):
            return
        if kind in (FULL, FIRST):
            parts = []
        if parts is None:
            continue  # the rest of a record whose start is lost
        parts.append(content[start:at])
        if kind in (FULL, LAST):
            yield b"".join(parts)
            parts = None


@dataclass
class LiveFiles:
    """The files that are in use according to a manifest.

    Attributes:
        tables: numbers of the table files.
        first_log: log files with this number or a higher one hold entries that no table has yet.
        previous_log: one more log file in use; 0 for none.
    """

    tables: set[int] = field(default_factory=set)
    first_log: int = 0
    previous_log: int = 0


def live_files(manifest: bytes) -> LiveFiles:
    """Find the files in use from the bytes of a manifest. Raises FormatError."""
    live = LiveFiles()
    for edit in log_records(manifest):
        at = 0
        while at < len(edit):
            at = _apply_edit(edit, at, live)
    return live


def _apply_edit(edit: bytes, at: int, live: LiveFiles) -> int:
    """Apply one field of a version edit; returns the offset after it."""
    tag, at = varint(edit, at)
    if tag == 1:
        start, at = string(edit, at)
        if edit[start:at] != COMPARATOR:
            raise FormatError(f"keys are ordered by {edit[start:at].decode(errors='replace')!r}")
    elif tag == 2:
        live.first_log, at = varint(edit, at)
    elif tag == 9:
        live.previous_log, at = varint(edit, at)
    elif tag in (3, 4):
        _, at = varint(edit, at)
    elif tag == 5:
        _, at = varint(edit, at)
        _, at = string(edit, at)
    elif tag == 6:
        _, at = varint(edit, at)
        number, at = varint(edit, at)
        live.tables.discard(number)
    elif tag == 7:
        _, at = varint(edit, at)
        number, at = varint(edit, at)
        live.tables.add(number)
        _, at = varint(edit, at)
        _, at = string(edit, at)
        _, at = string(edit, at)
    else:
        raise FormatError(f"unknown field {tag} in the manifest")
    return at


def batch_entries(batch: bytes) -> Iterator[tuple[bytes, int, int, int, int]]:
    """(key, sequence number, kind, start, end) of each entry of a log's write batch; the value is batch[start:end]."""
    if len(batch) < 12:
        raise FormatError("a write batch breaks off")
    sequence, n_entries = struct.unpack_from("<QI", batch)
    at = 12
    for i in range(n_entries):
        if at >= len(batch):
            raise FormatError("a write batch breaks off")
        kind = batch[at]
        start, at = string(batch, at + 1)
        key = batch[start:at]
        start = end = at
        if kind == VALUE:
            start, end = string(batch, at)
            at = end
        yield key, sequence + i, kind, start, end


def block_entries(block: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(key, start, end) of each entry of a block; the value is block[start:end]. A key is
    stored without the prefix that it shares with the key before it.
    """
    if len(block) < 4:
        raise FormatError("a block breaks off")
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    at, key, left = 0, b"", KEY_BYTES_PER_BYTE * len(block)
    while at < end:
        shared, at = varint(block, at)
        n_key, at = varint(block, at)
        n_value, at = varint(block, at)
        key = key[:shared] + block[at:at + n_key]
        at, left = at + n_key, left - len(key)
        if at + n_value > end or len(key) != shared + n_key:
            raise FormatError("a block breaks off")
        if left < 0:
            raise FormatError(f"a block of {len(block)} bytes spells out more than {KEY_BYTES_PER_BYTE} times as many "
                              "bytes of keys")
        yield key, at, at + n_value
        at += n_value


def split_key(key: bytes) -> tuple[bytes, int, int]:
    """Split a table's key into user key, sequence number and kind (VALUE or DELETION)."""
    if len(key) < 8:
        raise FormatError("a key breaks off")
    packed = int.from_bytes(key[-8:], "little")
    return key[:-8], packed >> 8, packed & 255


def index_block(table: bytes) -> tuple[int, int]:
    """Offset and length of a table file's index block, from its last FOOTER bytes or more. Raises FormatError."""
    footer = table[-FOOTER:]
    if len(footer) < FOOTER or int.from_bytes(footer[-8:], "little") != MAGIC:
        raise FormatError("not a LevelDB table, or one cut short")
    at = 0
    for _ in range(2):
        _, at = varint(footer, at)
    offset, at = varint(footer, at)
    n_bytes, _ = varint(footer, at)
    return offset, n_bytes
