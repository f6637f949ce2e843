"""Finds the fields of Datum records without copying them (field numbers: caffe.proto of Caffe 1.0)."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled

CORRUPT = -2
# columns of the table that find_fields writes
STATUS, CHANNELS, HEIGHT, WIDTH, DATA, LABEL, N_FLOATS, ENCODED, N_DATA = range(9)
N_COLUMNS = 9
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FLOAT_FIELD = 6


@compiled
def varint(file: np.ndarray, at: int, end: int) -> tuple[np.int64, int]:
    """The varint at offset ``at`` and the offset after it, which is above ``end`` if the varint is not complete."""
    value, shift = np.int64(0), 0
    while at < end and shift < 64:
        byte = np.int64(file[at])
        value |= (byte & 127) << shift
        at += 1
        shift += 7
        if byte < 128:
            return value, at
    return value, end + 1


@compiled
def _skip(file: np.ndarray, at: int, end: int, wire: int) -> tuple[int, int, int]:
    """Start, length and end of a field's content; the last is above ``end`` if the field is not complete."""
    if wire == BYTES:
        n_bytes, at = varint(file, at, end)
        if n_bytes < 0 or n_bytes > end - at:
            return at, 0, end + 1
        return at, n_bytes, at + n_bytes
    if wire == FIXED32:
        return at, 4, at + 4
    if wire == FIXED64:
        return at, 8, at + 8
    return at, 0, end + 1


@compiled
def _fields(file: np.ndarray, at: int, end: int, row: np.ndarray) -> int:
    """Fill one row from the Datum in file[at:end]; returns 0 or CORRUPT. Unknown fields are skipped."""
    while at < end:
        key, at = varint(file, at, end)
        number, wire = key >> 3, key & 7
        if at > end or number <= 0:
            return CORRUPT
        if wire == VARINT:
            value, at = varint(file, at, end)
            if number in (1, 2, 3):
                row[number] = value
            elif number == 5:
                row[LABEL] = np.int64(np.int32(value))
            elif number == 7:
                row[ENCODED] = value
        else:
            start, n_bytes, at = _skip(file, at, end, wire)
            if number == 4 and wire == BYTES:
                row[DATA], row[N_DATA] = start, n_bytes
            elif number == FLOAT_FIELD and wire != FIXED64:
                if n_bytes % 4:
                    return CORRUPT
                row[N_FLOATS] += n_bytes // 4
        if at > end:
            return CORRUPT
    return 0


@compiled
def find_fields(file: np.ndarray, spans: np.ndarray, table: np.ndarray) -> None:
    """Find the fields of each record.

    Args:
        file: uint8, 1-D, read-only, holds all records.
        spans: int64 (n, 2), start and length of each record in bytes; must lie inside ``file``.
        table: int64 (n, N_COLUMNS), written. DATA is an offset in ``file``, N_DATA a number of bytes, N_FLOATS a number
            of floats; STATUS is 0 or CORRUPT; a field that a record lacks is 0.
    """
    table[:] = 0
    for i in range(len(spans)):
        table[i, STATUS] = _fields(file, spans[i, 0], spans[i, 0] + spans[i, 1], table[i])


@compiled
def read_floats(file: np.ndarray, start: int, n_bytes: int, out: np.ndarray) -> int:
    """Copy the float_data of one Datum, whether packed or not.

    Args:
        file: uint8, 1-D, read-only, holds the record.
        start, n_bytes: where the record lies in ``file``.
        out: uint8, 1-D, receives the floats' bytes (little-endian float32).

    Returns:
        0, or CORRUPT if the floats do not fill ``out`` exactly. Nothing is written past its end.
    """
    at, end, n = start, start + n_bytes, 0
    while at < end:
        key, at = varint(file, at, end)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            _, at = varint(file, at, end)
            continue
        begin, n_content, at = _skip(file, at, end, wire)
        if at > end:
            return CORRUPT
        if number == FLOAT_FIELD and wire != FIXED64:
            if n_content > out.size - n:
                return CORRUPT
            for i in range(n_content):
                out[n + i] = file[begin + i]
            n += n_content
    return 0 if n == out.size else CORRUPT
