"""A file, whole or absent."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from data.errors import cannot_write


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a file, whole or not at all: what was there before stays until then. Raises DataError."""
    beside = Path(f"{path}.{os.getpid()}.part")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise cannot_write(path, error) from None
