"""A folder that is written beside and renamed into place, so that it is whole or absent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from scaffe.atomic_files import cannot_write
from scaffe.data.errors import DataError


def make_folder(path: str | Path, fill: Callable[[Path], int], force: bool) -> int:
    """Make a folder by ``fill``, which gets a folder that is not there yet. Returns what it returns.

    Args:
        path: the folder to make.
        fill: makes the folder and its files.
        force: replace the folder if there is one; otherwise that is an error, as in Caffe.

    Raises:
        DataError: the folder exists or cannot be written.
    """
    path = Path(path)
    if path.exists() and not force:
        raise DataError(f"{path}: exists already; remove it, or give -force to replace it")
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        made = fill(beside)
        if path.exists():
            shutil.rmtree(path)
        beside.rename(path)
    except OSError as error:
        raise DataError(cannot_write(path, error)) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return made
