"""CRC-32C (Castagnoli's polynomial, RFC 3720 appendix B.4), the checksum of LevelDB's files."""

from __future__ import annotations

import numpy as np

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
