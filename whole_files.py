"""Files that are there whole or not at all. Errors are the system's (OSError), of which each package makes its own."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

DEVICES = Path("/dev")


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write to beside `path`, or what it links to, that takes its name once it is on the disk.

    What is no file (`/dev/stdout`, a pipe) is written itself. Raises OSError where it cannot be written (no space, no
    folder); what was at `path` before is left as it was.
    """
    path = Path(path)
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
    """Write a file. Raises OSError as `replacing` does."""
    with replacing(path) as file:
        file.write(content)


def check_writable(path: str | Path) -> None:
    """Ahead of long work whose result goes to `path`. Raises OSError as `replacing` would."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not path.exists():
        beside = _beside(path.resolve())
        beside.touch()
        beside.unlink()


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _sync_folder(folder: Path) -> None:
    """So that the new name outlives a crash of the machine, where the file system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
