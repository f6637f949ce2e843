"""Files that are there whole or not at all; what goes wrong is a CommError."""

from __future__ import annotations

from pathlib import Path

import whole_files

from .errors import CommError


def write_whole(path: str | Path, text: str) -> None:
    """Write a file: what was there before stays until the new one is on the disk (see whole_files.replacing).

    Raises CommError, naming the file, where it cannot be.
    """
    try:
        whole_files.write_whole(path, text.encode())
    except OSError as error:
        raise cannot_write(path, error) from None


def check_writable(path: str | Path) -> None:
    """Ahead of long work whose result goes to `path`. Raises CommError as `write_whole` would."""
    try:
        whole_files.check_writable(path)
    except OSError as error:
        raise cannot_write(path, error) from None


def cannot_write(path: str | Path, error: OSError) -> CommError:
    """What to raise where a file or folder cannot be written: the target, and what the system says."""
    return CommError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}")
