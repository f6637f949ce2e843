"""Files kept between runs where only this user and root can change them, so that what is read back can be trusted."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from scaffe import environment

VARIABLE = environment.CACHE.name
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MOST_LINKS = 40  # on the way to a file, as in Linux


def kept_folder(name: str = "") -> Path | None:
    """The cache folder of this machine, ``SCAFFE_CACHE`` or else ``~/.cache/scaffe``, or the folder ``name`` in it.

    If others may change that folder, or it cannot be created, a private folder among the temporary files instead.

    Returns:
        None if there is no such folder either; then nothing is kept.
    """
    return first_usable([cache_home()], name)


def cache_home() -> Path:
    """``SCAFFE_CACHE``, else ``~/.cache/scaffe``; it may be missing, and others may be able to write there."""
    chosen = environment.CACHE.get()
    return Path(chosen) if chosen else _users_cache() / "scaffe"


def first_usable(candidates: Iterable[Path], name: str = "") -> Path | None:
    """The first of these folders, or of those called ``name`` in them, that only this user can write to; it is made if
    there is none. The best come first; the last resort is ``scaffe-UID`` among the temporary files.
    """
    own = Path(tempfile.gettempdir()) / f"scaffe-{os.geteuid()}"
    return next((path for folder in (*candidates, own) if _usable(path := folder / name)), None)


@cache
def _usable(folder: Path) -> bool:
    with suppress(OSError):
        for path in reversed([folder, *folder.parents]):
            if not path.exists():
                path.mkdir(mode=0o700, exist_ok=True)
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK) and why_others_may_change(folder) == ""


def read(path: Path) -> bytes | None:
    """A file's content; None if there is no such file, or users other than this one and root may write to it.

    The file must be in a folder that ``first_usable`` returned.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_ours(status) or status.st_mode & OTHERS_WRITE:
            return None
        try:
            return file.read()
        except OSError:
            return None


def write(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all, with write permission for this user only. Raises OSError."""
    descriptor, fresh = tempfile.mkstemp(".part", path.name, path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, 0o644)
        Path(fresh).replace(path)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise


def why_others_may_change(path: Path) -> str:
    """Why another user could replace what ``path`` leads to; empty if only this user and root can.

    Every folder and link on the way must belong to this user or root. No folder may be writable by others, except
    sticky ones like ``/tmp``, where nobody can rename another user's files.
    """
    left = list(reversed(Path(os.path.abspath(path)).parts[1:]))  # noqa: PTH100 - no link is followed yet
    at, n_links = Path("/"), 0
    while left:
        part = left.pop()
        at = at.parent if part == ".." else at / part
        try:
            status = at.lstat()
        except OSError as error:
            return f"{at}: {(error.strerror or str(error)).lower()}"
        if not _is_ours(status):
            return f"{at} belongs to user {status.st_uid}"
        if stat.S_ISLNK(status.st_mode):
            n_links += 1
            if n_links > MOST_LINKS:
                return f"{path}: too many links"
            target = at.readlink()
            left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            at = Path("/") if target.is_absolute() else at.parent
        elif status.st_mode & OTHERS_WRITE and not (left and status.st_mode & stat.S_ISVTX):
            return f"others may write in {at} (mode {stat.S_IMODE(status.st_mode):o})"
    return ""


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid())


def _users_cache() -> Path:
    """Where programs keep what they can make again; a folder that cannot be where this user has no home."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base)
    with suppress(RuntimeError):
        return Path.home() / ".cache"
    return Path("/dev/null")
