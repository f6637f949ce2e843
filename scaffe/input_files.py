"""Opens files that a user names, regular files only: a pipe may block for ever and a device may never end."""

from __future__ import annotations

import errno
import mmap
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from scaffe.errors import UserError

KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
DEFLATE_RATIO = 1032  # the most that deflate (gzip, HDF5's usual filter) can shrink anything
ALWAYS_ALLOWED_BYTES = 1 << 26


def open_input(path: str | Path, buffering: int = -1) -> BinaryIO:
    """Open a file for reading; ``buffering`` as Python's ``open`` takes it.

    Raises:
        OSError: the file cannot be opened, or is a pipe, device, socket or folder; ``strerror`` says which.
    """
    if "\0" in str(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    # non-blocking, because opening a pipe would wait for its writer
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if kind != stat.S_IFREG:
            raise OSError(errno.EINVAL, f"expected a file, found {KINDS.get(kind, 'something else')}", str(path))
        return os.fdopen(descriptor, "rb", buffering)
    except BaseException:
        os.close(descriptor)
        raise


MakeError = Callable[[str], Exception]


@contextmanager
def told(path: str | Path, error: MakeError | None = UserError) -> Iterator[None]:
    """Raise ``error``, made from a line that names the file, in place of the system's OSError; None: leave that."""
    try:
        yield
    except OSError as cause:
        if error is None:
            raise
        raise error(f"{path}: {(cause.strerror or str(cause)).lower()}") from cause


def read_input(path: str | Path, error: MakeError | None = None) -> bytes:
    """A file's bytes. Raises OSError as ``open_input``, or ``error`` as ``told``."""
    with told(path, error), open_input(path, 0) as file:  # read whole, so a buffer would only cost
        return file.read()


def map_input(path: str | Path, error: MakeError | None = None) -> memoryview:
    """A file's bytes, which are read when they are looked at and take no memory of the process: for files as large as
    memory. Raises as ``read_input``."""
    with told(path, error), open_input(path) as file:
        is_empty = os.fstat(file.fileno()).st_size == 0
        return memoryview(b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def read_text_input(path: str | Path, errors: str = "strict", error: MakeError | None = None) -> str:
    """A UTF-8 file's text, with all line ends converted to ``\\n``.

    Args:
        path: the file.
        errors: how to treat bytes that are not UTF-8, as in ``bytes.decode``.
        error: makes what is raised in place of OSError, from its one-line message.

    Raises:
        OSError: as ``open_input``.
        UnicodeDecodeError: the file is not UTF-8 and ``errors`` is strict.
    """
    return read_input(path, error).decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")


def there(path: str | Path) -> bool:
    """Whether a file or folder exists; False for a name that no file can have, where Path.exists raises."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def most_unpacked_bytes(n_packed: int) -> int:
    """The most bytes that ``n_packed`` bytes of a compressed file may unpack to; more is treated as an attack."""
    return max(ALWAYS_ALLOWED_BYTES, DEFLATE_RATIO * n_packed)


CHUNK_BYTES = 1 << 20


def checksum(path: str | Path) -> int:
    """The CRC-32 of a file. Raises UserError."""
    crc = 0
    with told(path), open_input(path) as file:
        while piece := file.read(CHUNK_BYTES):
            crc = zlib.crc32(piece, crc)
    return crc
