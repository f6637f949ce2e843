"""A file, whole or absent; what goes wrong is a DataError."""

from __future__ import annotations

from pathlib import Path

import whole_files
from data.errors import cannot_write


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a file, whole or not at all: what was there before stays until then. Raises DataError."""
    try:
        whole_files.write_whole(path, content)
    except OSError as error:
        raise cannot_write(path, error) from None
