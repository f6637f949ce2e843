"""Checksums of whole files."""

from __future__ import annotations

import zlib
from pathlib import Path

from scaffe.errors import UserError
from scaffe.input_files import open_input

CHUNK_BYTES = 1 << 20


def checksum(path: str | Path) -> int:
    """The CRC-32 of a file. Raises UserError."""
    crc = 0
    try:
        with open_input(path) as file:
            while piece := file.read(CHUNK_BYTES):
                crc = zlib.crc32(piece, crc)
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    return crc
