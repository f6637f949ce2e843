"""A failing rank prints one line, and a traceback if the error is a defect, and aborts the whole job."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import struct
import sys
import termios
import threading
import time
import traceback
from typing import Protocol

from scaffe import forking, log
from scaffe.environment import TRACEBACK
from scaffe.errors import ROOT_SPEAKS_FIRST_SECONDS, ExpectedError, is_expected, users_line, users_traceback


class Abortable(Protocol):
    """Ranks that can be ended together: a Communicator."""

    rank: int
    n_ranks: int

    def abort(self, code: int = 1) -> None:
        """End the job on all ranks with exit code `code`."""


def describe(error: BaseException) -> str:
    """Puts an error on one line: an ExpectedError's message; of any other its type, message and place in the code."""
    if (said := users_line(error)) is not None:
        return said
    lines = str(error).strip().splitlines() or [""]
    if isinstance(error, ExpectedError):
        return lines[0]
    if isinstance(error, KeyboardInterrupt):
        return "ended by Ctrl-C (SIGINT)"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {lines[0]}{place}"


def report_and_abort(communicator: Abortable, error: BaseException) -> None:
    """Prints one line with the rank on standard error and ends the job on all ranks.

    The exit code is 130 for Ctrl-C (one rank alone ends by the signal itself), else 1. An error that several ranks
    share is printed by the first of them; the others wait, each a second longer than the one before, and print it if
    the job has not ended by then. The traceback is printed too if the error is not an expected one, or if
    SCAFFE_TRACEBACK is set. The job ends even if standard error cannot be written or no memory is left.
    """
    if isinstance(error, KeyboardInterrupt) and communicator.n_ranks == 1:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # as other programs end: no word, and shells see that it was this
        os.kill(os.getpid(), signal.SIGINT)
    part = getattr(error, "rank_in_subset", None)
    everywhere = isinstance(error, ExpectedError) and error.everywhere and part is None
    rank = communicator.rank if everywhere else part or 0
    if rank != 0:
        time.sleep(ROOT_SPEAKS_FIRST_SECONDS + rank)
    with contextlib.suppress(OSError, ValueError, MemoryError):  # ValueError: the stream is closed
        _report(communicator, error, everywhere and rank == 0)
    communicator.abort(130 if isinstance(error, KeyboardInterrupt) else 1)


def _report(communicator: Abortable, error: BaseException, everywhere: bool) -> None:
    is_defect = isinstance(error, Exception) and not is_expected(error)
    line, who = describe(error), f"rank {communicator.rank}"
    if communicator.n_ranks > 1 and not everywhere and not line.startswith(who):
        line = f"{who}: {line}"
    said = traceback.format_exception(error) if is_defect or TRACEBACK.get() else []
    if communicator.n_ranks > 1 or not is_defect:
        said.append(f"{line}\n")
    log.clear_live()
    sys.stderr.write("".join([*said, users_traceback(error)]))  # in one piece: other ranks may write at the same time
    sys.stderr.flush()


def install_excepthook(communicator: Abortable) -> None:
    """Has an uncaught exception in any thread of this rank end the job on all ranks.

    In a forked child it ends that process alone, as usual.
    """
    before = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: object) -> None:
        report_and_abort(communicator, error)

    def thread_hook(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            report_and_abort(communicator, args.exc_value)

    def give_back() -> None:
        sys.excepthook, threading.excepthook = before

    sys.excepthook = hook
    threading.excepthook = thread_hook
    forking.in_child(give_back)


STDOUT, STDERR = 1, 2
MOST_LOOKS, LOOK_SECONDS = 500, 0.01
PASSING_ON_SECONDS = 0.2


def flush_output(is_launched: bool) -> None:
    """Flushes what this rank has printed, before it ends the job. ``is_launched``: whether a launcher passes the output
    on; it is given time to."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a stream that is full or closed keeps nobody alive
            stream.flush()
    if is_launched:
        wait_until_read(STDOUT, STDERR)
        time.sleep(PASSING_ON_SECONDS)  # the launcher has still to write what it has read


def wait_until_read(*descriptors: int) -> None:
    """Waits until those of the descriptors that are pipes have been read empty, for MOST_LOOKS polls at most.

    The launcher reads them. On a busy machine it may do so only after it has been told to end the job.
    """
    for _ in range(MOST_LOOKS):
        if not any(map(_n_unread, descriptors)):
            return
        time.sleep(LOOK_SECONDS)


def _n_unread(descriptor: int) -> int:
    """Bytes that a pipe holds; 0 for a descriptor that is no pipe, or closed."""
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return 0
        found: tuple[int] = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
    except OSError:
        return 0
    return found[0]
