"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from scaffe.errors import UserError

CHUNK_BYTES = 1 << 20


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write to beside ``path`` that takes its name once it is on the disk.

    Raises:
        UserError: it cannot be written (no space, no folder); what was at ``path`` before is left as it was.
    """
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w+b") as file:  # HDF5 reads what it wrote
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}; "
                        "what was there before is unchanged") from error
    finally:
        with suppress(OSError):
            beside.unlink()


def checksum(path: str | Path) -> int:
    """The CRC-32 of a file. Raises UserError."""
    crc = 0
    try:
        with Path(path).open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                crc = zlib.crc32(piece, crc)
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    return crc


def _sync_folder(folder: Path) -> None:
    """So that the new name outlives a crash of the machine, where the file system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
