"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from .errors import CommError

DEVICES = Path("/dev")


def write_whole(path: str | Path, text: str) -> None:
    """Write a file: what was there before stays until the new one is on the disk.

    What is no file (`/dev/stdout`, a pipe) is written itself. Raises CommError, naming the file, where it cannot be.
    """
    path = Path(path)
    try:
        if path.exists() and (not path.is_file() or path.parent == DEVICES):
            path.write_text(text)
        else:
            _replace(path.resolve(), text)
    except OSError as error:
        raise cannot_write(path, error) from None


def check_writable(path: str | Path) -> None:
    """Ahead of long work whose result goes to `path`. Raises CommError as `write_whole` would."""
    path = Path(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not path.exists():
            beside = _beside(path.resolve())
            beside.touch()
            beside.unlink()
    except OSError as error:
        raise cannot_write(path, error) from None


def cannot_write(path: str | Path, error: OSError) -> CommError:
    """What to raise where a file or folder cannot be written: the target, and what the system says."""
    return CommError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}")


def _replace(path: Path, text: str) -> None:
    beside = _beside(path)
    try:
        with beside.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")
