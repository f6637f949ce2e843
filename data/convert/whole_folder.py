"""Writes a database's folder under a temporary name and renames it, so it appears complete or not at all."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from scaffe import temporary
from scaffe.atomic_files import cannot_write, place_of
from scaffe.errors import DataError

LMDB = r"data\.mdb|lock\.mdb"
LEVELDB = r"CURRENT|LOCK|LOG|LOG\.old|MANIFEST-\d+|\d+\.(ldb|sst|log|dbtmp)"
DATABASE_FILE = re.compile(f"{LMDB}|{LEVELDB}")
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # Linux


def make_folder(path: str | Path, fill: Callable[[Path], int], force: bool) -> int:
    """Make a database's folder.

    Args:
        path: the folder to make, or this user's link to it; another user's link is replaced, as a database is.
        fill: called with an empty folder, in which it writes the database's files.
        force: replace a database or an empty folder of that name; without it that is an error, as in Caffe. Nothing
            else is ever removed. The old database stays in place until the new one is complete.

    Returns:
        What ``fill`` returns.

    Raises:
        DataError: the folder exists and ``force`` is not given, it holds files that are not a database's, or it cannot
            be written.
    """
    try:
        target = place_of(Path(path))
        _check_replaceable(path, target, force)
        temporary.remove_abandoned(target.parent, target.name, _remove_database)
        beside, descriptor = temporary.make_folder(target)
        try:
            made = fill(beside)
            _check_replaceable(path, target, force)  # again: filling may have taken hours
            _put_in_place(beside, target)
        finally:
            _remove_database(beside)
            os.close(descriptor)
    except OSError as error:
        raise DataError(cannot_write(path, error)) from None
    return made


def _check_replaceable(path: str | Path, target: Path, force: bool) -> None:
    if not target.exists() and not target.is_symlink():
        return
    if not force:
        raise DataError(f"{path}: exists already; remove it, or give -force to replace it")
    if target.is_symlink():
        return
    if not target.is_dir():
        raise DataError(f"{path}: is no folder; -force replaces databases alone")
    others = sorted(file.name for file in target.iterdir() if not _is_of_a_database(file))
    if others:
        raise DataError(f"{path}: {others[0]!r} in it is no file of a database; -force replaces databases alone")


def _is_of_a_database(file: Path) -> bool:
    return DATABASE_FILE.fullmatch(file.name) is not None and file.is_file() and not file.is_symlink()


def _put_in_place(beside: Path, target: Path) -> None:
    """Rename ``beside`` to ``target``; an old ``target`` ends up as ``beside``.

    The two are exchanged atomically where the file system can do it. Elsewhere (NFS) the old folder is first renamed
    to ``NAME.old``, where a killed process leaves it.
    """
    if not target.exists() and not target.is_symlink():
        beside.rename(target)
    elif not _exchange(beside, target):
        old = target.with_name(f"{target.name}.old")
        if old.exists():
            raise DataError(f"{target} cannot be replaced: {old}, which would be its name meanwhile, exists")
        target.rename(old)
        beside.rename(target)
        old.rename(beside)


def _exchange(one: Path, other: Path) -> bool:
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    return renameat2 is not None and renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other),
                                               RENAME_EXCHANGE) == 0


def _remove_database(folder: Path) -> None:
    """Remove a database's files and their folder, or a link. Other files in it stay, and then the folder stays too."""
    with suppress(OSError):
        if folder.is_symlink():
            folder.unlink()
            return
        for file in folder.iterdir():
            if _is_of_a_database(file):
                file.unlink()
        folder.rmdir()
