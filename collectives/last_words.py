"""A rank's output is brought out before the rank ends the job: launchers drop what they have not read by then."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct
import sys
import termios
import time

STDOUT, STDERR = 1, 2
MOST_LOOKS, LOOK_SECONDS = 500, 0.01
PASSING_ON_SECONDS = 0.2


def last_words(is_launched: bool) -> None:
    """Bring out what this rank has printed, before it ends.

    Args:
        is_launched: whether a launcher passes it on.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a stream that is full or closed keeps nobody alive
            stream.flush()
    if is_launched:
        wait_until_read(STDOUT, STDERR)
        time.sleep(PASSING_ON_SECONDS)  # what it has read it has still to write; and nobody can see into a terminal


def wait_until_read(*descriptors: int) -> None:
    """Wait until nothing is left in those of the descriptors that are pipes, for MOST_LOOKS looks at most.

    The launcher reads them. On a busy machine it may come to that later than to the word that the job is to end.
    """
    for _ in range(MOST_LOOKS):
        if not any(map(_n_unread, descriptors)):
            return
        time.sleep(LOOK_SECONDS)


def _n_unread(descriptor: int) -> int:
    """Bytes that a pipe holds; 0 for what is no pipe, or closed."""
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return 0
        found: tuple[int] = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
    except OSError:
        return 0
    return found[0]
