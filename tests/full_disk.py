"""Writes that fail as on a full disk, without one."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(n_bytes: int) -> Iterator[None]:
    """No file grows beyond n_bytes: writes are cut short there and then end with EFBIG. Reports of the tests, which may
    go to a longer file, come after it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # CPython would keep a module's cut code
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = before
