"""Writes files atomically: whole or not at all, and never where another user's link leads."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from scaffe import temporary

DEVICES, PROCESSES = Path("/dev"), Path("/proc")
MOST_LINKS = 40  # on the way to a file, as in Linux
MakeError = Callable[[str], Exception]


@contextmanager
def replacing(path: str | Path, error: MakeError) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` once it is complete and synced to disk.

    It is created beside ``path``, or beside the file that ``path`` links to (``place_of``). If ``path`` is not a
    regular file (``/dev/stdout``, a pipe), it is written to directly.

    Args:
        path: the file to write.
        error: makes the exception to raise, from its one-line message, if the file cannot be written (no space, no
            such folder). What was at ``path`` before is then left unchanged.
    """
    path = Path(path)
    with _telling(path, error):
        target = place_of(path)
        if _is_direct(path, target):
            with _open_direct(path, target, os.O_WRONLY) as device:
                yield device
            return
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


def place_of(path: Path) -> Path:
    """Where an output of that name goes: this user's links are followed, another user's link is what it replaces.

    Others can plant links in a folder that all may write, and would choose what the output overwrites. The system's in
    ``/dev`` are left as they are.

    Raises:
        OSError: a folder on the way cannot be read, or there are too many links.
    """
    for _ in range(MOST_LINKS):
        folder = path.parent.resolve()
        if folder == DEVICES or not path.is_symlink() or path.lstat().st_uid != os.geteuid():
            return folder / path.name
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _is_direct(path: Path, place: Path) -> bool:
    """Whether an output is written where it lies, as a device or a pipe is; ``place`` as ``place_of`` gives it."""
    return path.exists() and (place.parent == DEVICES or not (path.is_file() or place.is_symlink()))


def _open_direct(path: Path, place: Path, flags: int) -> BinaryIO:
    """Open a device or a pipe, and nothing that somebody puts in its place meanwhile. Raises OSError."""
    of_system = place.parent == DEVICES or PROCESSES in place.parents  # whose links lead to what has no name
    flags |= os.O_CLOEXEC | (os.O_TRUNC if of_system else os.O_NOFOLLOW)
    descriptor = os.open(path if of_system else place, flags)
    if not of_system and stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    return os.fdopen(descriptor, "wb") if flags & os.O_WRONLY else os.fdopen(descriptor, "w+b", buffering=0)


def open_new(path: str | Path) -> BinaryIO:
    """Create a file, or empty it, for content that comes bit by bit; another user's link is replaced. Raises
    OSError."""
    path = Path(path)
    place = place_of(path)
    if _is_direct(path, place):
        return _open_direct(path, place, os.O_RDWR)
    if place.is_symlink():
        beside, file = temporary.make_file(place)
        beside.replace(place)
        return file
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(place, flags, 0o666), "w+b", buffering=0)


def make_folder(folder: str | Path, error: MakeError) -> None:
    """Make a folder for outputs, and those above it, unless it is there.

    Args:
        folder: its name. A link of another user is refused, unless root made it: its owner would choose where the
            outputs go.
        error: makes the exception to raise, from its one-line message.
    """
    try:
        place = place_of(Path(folder))
        owner = place.lstat().st_uid if place.is_symlink() else 0
        if owner:
            raise error(f"{folder}: is a link that belongs to user {owner}; name the folder that it leads to")
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise error(cannot_write(folder, cause)) from cause


def refuse_input(path: str | Path, inputs: Iterable[str | Path], error: MakeError) -> None:
    """Raise ``error`` if an output would overwrite one of the files that it is made from."""
    for each in inputs:
        with suppress(OSError):
            if Path(path).samefile(each):
                raise error(f"{path}: is what would be read; give another name for what is written")


def check_writable(path: str | Path, error: MakeError) -> None:
    """Check before long work that its result can be written to ``path``; raises what ``replacing`` would."""
    path = Path(path)
    with _telling(path, error):
        place = place_of(path)
        if path.is_dir() and not place.is_symlink():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if place.is_symlink() or not path.exists():
            beside, file = temporary.make_file(place)
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
