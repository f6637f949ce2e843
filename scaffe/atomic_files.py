"""Writes files atomically: whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from scaffe import temporary

DEVICES = Path("/dev")
MakeError = Callable[[str], Exception]


@contextmanager
def replacing(path: str | Path, error: MakeError) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` once it is complete and synced to disk.

    It is created beside ``path``, or beside the file that ``path`` links to. If ``path`` is not a regular file
    (``/dev/stdout``, a pipe), it is written to directly.

    Args:
        path: the file to write.
        error: makes the exception to raise, from its one-line message, if the file cannot be written (no space, no
            such folder). What was at ``path`` before is then left unchanged.
    """
    path = Path(path)
    with _telling(path, error):
        if path.exists() and (not path.is_file() or path.parent == DEVICES):
            with path.open("wb") as device:
                yield device
            return
        target = path.resolve()
        temporary.remove_abandoned(target.parent, target.name)
        beside, file = temporary.make_file(target)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
            _sync_folder(target.parent)
        finally:
            with suppress(OSError):
                beside.unlink()


def write_whole(path: str | Path, content: bytes, error: MakeError) -> None:
    """Write ``content`` to a file, whole or not at all; ``error`` as in ``replacing``."""
    with replacing(path, error) as file:
        file.write(content)


def check_writable(path: str | Path, error: MakeError) -> None:
    """Check before long work that its result can be written to ``path``; raises what ``replacing`` would."""
    path = Path(path)
    with _telling(path, error):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not path.exists():
            beside, file = temporary.make_file(path.resolve())
            file.close()
            beside.unlink()


def cannot_write(path: object, cause: OSError) -> str:
    """The error line for a file or folder that cannot be written: its name and the system's message."""
    return f"{path} cannot be written: {(cause.strerror or str(cause)).lower()}"


@contextmanager
def _telling(path: Path, error: MakeError) -> Iterator[None]:
    """Turns the system's error into the caller's, which names the file."""
    try:
        yield
    except OSError as cause:
        kept = "; what was there before is unchanged" if path.exists() else ""
        raise error(f"{cannot_write(path, cause)}{kept}") from cause


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that a renamed file survives a crash of the machine, if the file system supports that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
