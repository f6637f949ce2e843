"""Files that a user names, opened only where they are files: a pipe may block for ever, a device may never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
DEFLATE_RATIO = 1032  # the most that deflate (gzip, HDF5's usual filter) can shrink anything
ALWAYS_ALLOWED_BYTES = 1 << 26


def open_input(path: str | Path) -> BinaryIO:
    """A file opened for reading.

    Raises:
        OSError: it cannot be opened, or is a pipe, a device, a socket or a folder; ``strerror`` says so.
    """
    if "\0" in str(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    # not blocking, since opening a pipe waits for whoever writes to it
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if kind != stat.S_IFREG:
            raise OSError(errno.EINVAL, f"expected a file, found {KINDS.get(kind, 'something else')}", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_input(path: str | Path) -> bytes:
    """A file's bytes. Raises OSError as ``open_input``."""
    with open_input(path) as file:
        return file.read()


def read_text_input(path: str | Path, errors: str = "strict") -> str:
    """A UTF-8 file's text, its line ends made ``\\n``.

    Args:
        path: the file.
        errors: what to do with other bytes, as in ``bytes.decode``.

    Raises:
        OSError: as ``open_input``.
        UnicodeDecodeError: other bytes, where ``errors`` is strict.
    """
    return read_input(path).decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")


def there(path: str | Path) -> bool:
    """Whether there is a file or folder; False, where Path.exists raises, for a name that no file can have."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def most_unpacked_bytes(n_packed: int) -> int:
    """Bytes that so many bytes of a compressed file may unpack to, before it counts as made to fill the memory."""
    return max(ALWAYS_ALLOWED_BYTES, DEFLATE_RATIO * n_packed)
