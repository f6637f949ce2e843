"""Temporary files and folders beside their target, with unguessable names; those of killed processes can be found.

A name gives the target, the machine and the process: ``.run_iter_100.caffemodel.node7.4711.9f8e7d6c.part``. The process
holds a lock on the file (flock) as long as it runs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

ENDING = "part"
REFUSED = (errno.EINVAL, errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT)
"""Errors of file systems without nameless files, or without direct I/O."""
MOST_BYTES = 120  # of the target's name; a file's name has 255
PARTS = re.compile(rf"\.(?P<target>.*)\.(?P<host>[^.]*)\.(?P<pid>\d+)\.[0-9a-f]{{8}}\.{ENDING}", re.DOTALL)


def make_file(target: Path) -> tuple[Path, BinaryIO]:
    """Create a file beside ``target``, following no link. Returns its name and the file, open for reading and writing.
    Raises OSError."""
    path = _fresh_name(target)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    _lock(descriptor)
    return path, os.fdopen(descriptor, "w+b")


def make_nameless(folder: Path, name: str, is_direct: bool = False) -> int:
    """Create a file without a name, which the system removes with the last process that has it open or mapped.

    Args:
        folder: where.
        name: what those are called that a file system without nameless files gives a name for a moment. Those that
            killed processes have left are removed.
        is_direct: read and write past the page cache (O_DIRECT), where the file system can.

    Returns:
        its descriptor. Raises OSError.
    """
    flags = os.O_RDWR | os.O_CLOEXEC
    for kind in (os.O_TMPFILE | os.O_DIRECT, os.O_TMPFILE) if is_direct else (os.O_TMPFILE,):
        try:
            return os.open(folder, flags | kind, 0o600)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
    remove_abandoned(folder, name)  # of a process that was killed before it took the name away
    path, file = make_file(folder / name)
    with file:
        path.unlink()
        return os.dup(file.fileno())


def make_folder(target: Path) -> tuple[Path, int]:
    """Create a folder beside ``target``. Returns its name and a descriptor to close after use. Raises OSError."""
    path = _fresh_name(target)
    path.mkdir()
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    _lock(descriptor)
    return path, descriptor


def remove_abandoned(folder: Path, start: str, remove: Callable[[Path], None] = Path.unlink) -> None:
    """Remove temporary files that dead processes of this machine left in a folder.

    Kept are those of other machines, those whose lock is still held (by a container with the same host name), and
    those that cannot be removed.

    Args:
        folder: where to look.
        start: how the targets' names begin.
        remove: removes one such file or folder.
    """
    with suppress(OSError):
        for path in folder.iterdir():
            parts = PARTS.fullmatch(path.name)
            if parts and parts["target"].startswith(_short(start)) and parts["host"] == _host() \
                    and not _lives(int(parts["pid"])) and not _is_locked(path):
                with suppress(OSError):
                    remove(path)


def _fresh_name(target: Path) -> Path:
    return target.with_name(f".{_short(target.name)}.{_host()}.{os.getpid()}.{secrets.token_hex(4)}.{ENDING}")


def _short(name: str) -> str:
    return os.fsencode(name)[:MOST_BYTES].decode(errors="ignore")


def _host() -> str:
    return socket.gethostname().replace(".", "-").replace("/", "-")[:64]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # another user's
    with suppress(OSError, IndexError):  # one that was killed, and that nobody has waited for, is gone too
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    return True


def _lock(descriptor: int) -> None:
    with suppress(OSError):  # a file system without locks: the name alone tells
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
