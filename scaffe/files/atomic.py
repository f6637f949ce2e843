"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from scaffe.errors import UserError

CHUNK_BYTES = 1 << 20
DEVICES = Path("/dev")


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write to beside ``path``, or what it links to, that takes its name once it is on the disk.

    What is no file (``/dev/stdout``, a pipe) is written itself.

    Raises:
        UserError: it cannot be written (no space, no folder); what was at ``path`` before is left as it was.
    """
    path = Path(path)
    with _saying(path):
        if path.exists() and (not path.is_file() or path.parent == DEVICES):
            with path.open("wb") as file:
                yield file
            return
        target = path.resolve()
        beside = _beside(target)
        try:
            with beside.open("w+b") as file:  # HDF5 reads what it wrote
                yield file
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
            _sync_folder(target.parent)
        finally:
            with suppress(OSError):
                beside.unlink()


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a file, whole or not at all. Raises UserError as ``replacing`` does."""
    with replacing(path) as file:
        file.write(content)


def check_writable(path: str | Path) -> None:
    """Ahead of long work whose result goes to ``path``. Raises UserError as ``replacing`` would."""
    path = Path(path)
    with _saying(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not path.exists():
            beside = _beside(path.resolve())
            beside.touch()
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


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


@contextmanager
def _saying(path: Path) -> Iterator[None]:
    """Turns the system's error into one that names the file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}; "
                        "what was there before is unchanged") from error


def _sync_folder(folder: Path) -> None:
    """So that the new name outlives a crash of the machine, where the file system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
