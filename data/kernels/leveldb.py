"""Checksums and compression of LevelDB's files: CRC-32C (RFC 3720, appendix B.4), Snappy (format_description.txt)."""

from __future__ import annotations

import numpy as np

from scaffe.data.kernels.datum_fields import varint
from scaffe.jit import compiled

POLYNOMIAL = 0x82F63B78  # bit-reversed


def _table() -> np.ndarray:
    rest = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        rest = np.where(rest & 1, (rest >> 1) ^ np.uint32(POLYNOMIAL), rest >> 1).astype(np.uint32)
    return rest


TABLE = _table()


@compiled
def crc32c(content: np.ndarray) -> np.uint32:
    """The CRC-32C of ``content``, uint8 (n,)."""
    crc = np.uint32(0xFFFFFFFF)
    for byte in content:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)


LITERAL, NEAR_COPY, COPY = 0, 1, 2  # the low two bits of a tag; 3 is a copy with a 4-byte offset
CORRUPT = -2


@compiled
def uncompressed_bytes(file: np.ndarray, at: int, end: int) -> int:
    """Number of bytes that file[at:end] unpacks to, or CORRUPT."""
    n_bytes, at = varint(file, at, end)
    return n_bytes if 0 <= n_bytes < 1 << 32 and at <= end else CORRUPT


@compiled
def _little_endian(file: np.ndarray, at: int, n_bytes: int) -> np.int64:
    value = np.int64(0)
    for i in range(n_bytes):
        value |= np.int64(file[at + i]) << (8 * i)
    return value


@compiled
def uncompress(file: np.ndarray, at: int, end: int, out: np.ndarray) -> int:
    """Unpack file[at:end] into ``out``, uint8, as long as ``uncompressed_bytes`` says. Returns 0 or CORRUPT."""
    _, at = varint(file, at, end)
    n = 0
    while at < end:
        tag = int(np.int64(file[at]))
        at += 1
        kind, high = tag & 3, tag >> 2
        if kind == LITERAL:
            n_length = max(0, high - 59)
            if at + n_length > end:
                return CORRUPT
            length = int(_little_endian(file, at, n_length) if n_length else high) + 1
            at += n_length
            if length > end - at or length > out.size - n:
                return CORRUPT
            out[n:n + length] = file[at:at + length]
            at += length
        else:
            n_offset = 1 if kind == NEAR_COPY else 2 if kind == COPY else 4
            if at + n_offset > end:
                return CORRUPT
            offset = int(_little_endian(file, at, n_offset)) | (tag >> 5 << 8 if kind == NEAR_COPY else 0)
            length = (high & 7) + 4 if kind == NEAR_COPY else high + 1
            at += n_offset
            if offset == 0 or offset > n or length > out.size - n:
                return CORRUPT
            for i in range(length):  # byte by byte: a copy may overlap what it writes
                out[n + i] = out[n + i - offset]
        n += length
    return 0 if n == out.size else CORRUPT
