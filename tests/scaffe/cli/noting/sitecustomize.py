"""First on PYTHONPATH: every process writes the compiled functions that it loads or keeps into the file NOTED_IN."""

import os
from pathlib import Path

from scaffe import private_files

_read, _write = private_files.read, private_files.write


def _note(path: Path) -> None:
    with Path(os.environ["NOTED_IN"]).open("a") as file:  # one write: ranks may note at the same time
        file.write(f"{path}\n")


def read(path: Path) -> bytes | None:
    """As ``private_files.read``."""
    content = _read(path)
    if content is not None:
        _note(path)
    return content


def write(path: Path, content: bytes) -> None:
    """As ``private_files.write``."""
    _write(path, content)
    _note(path)


private_files.read, private_files.write = read, write
