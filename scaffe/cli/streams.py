"""The standard streams of a command whose caller has closed them, or stops reading."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

READER_GONE = 141
"""The exit code of a program that SIGPIPE ends, as shells count it."""


def open_closed_ones() -> None:
    """Put /dev/null where descriptors 0 to 2 are closed: the next file opened would take one, and a log or a C library
    would write into it."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - for the whole process
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


@contextmanager
def quiet_without_a_reader() -> Iterator[None]:
    """End the process where the reader of what it prints has gone (``| head``): quietly, as other programs do. What
    standard error cannot take (a full disk) changes no exit code: Python would make it 120.

    Raises:
        SystemExit: with ``READER_GONE``.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still in the buffer goes there
        raise SystemExit(READER_GONE) from None
    finally:
        try:
            sys.stderr.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
