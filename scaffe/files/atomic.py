"""Files that are there whole or not at all; what goes wrong is a UserError."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import whole_files
from scaffe.errors import UserError

CHUNK_BYTES = 1 << 20


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write to beside ``path``, or what it links to, that takes its name once it is on the disk.

    What is no file (``/dev/stdout``, a pipe) is written itself.

    Raises:
        UserError: it cannot be written (no space, no folder); what was at ``path`` before is left as it was.
    """
    with _saying(path), whole_files.replacing(path) as file:
        yield file


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a file, whole or not at all. Raises UserError as ``replacing`` does."""
    with replacing(path) as file:
        file.write(content)


def check_writable(path: str | Path) -> None:
    """Ahead of long work whose result goes to ``path``. Raises UserError as ``replacing`` would."""
    with _saying(path):
        whole_files.check_writable(path)


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


@contextmanager
def _saying(path: str | Path) -> Iterator[None]:
    """Turns the system's error into one that names the file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}; "
                        "what was there before is unchanged") from error
