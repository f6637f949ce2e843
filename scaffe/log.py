"""Caffe's log: lines in glog's form on standard error, written by rank 0."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import ModuleType

_quiet = False


def silence(quiet: bool) -> None:
    """Write nothing from now on (ranks other than 0)."""
    global _quiet
    _quiet = quiet


def info(message: str) -> None:
    """A line like ``I1121 02:44:01.123456 4711 solver.py:60] message``."""
    if not _quiet:
        write(f"{_prefix('I')}{message}\n")


def warning(message: str) -> None:
    """The same with W for a warning."""
    if not _quiet:
        write(f"{_prefix('W')}{message}\n")


def write(text: str) -> None:
    """Put text on standard error in one piece, so that ranks' lines do not mix."""
    sys.stderr.write(clear_line() + text)
    sys.stderr.flush()


def clear_line() -> str:
    """What wipes a live progress line off a terminal; nothing in a file."""
    return "\r\x1b[K" if sys.stderr.isatty() else ""


def _prefix(level: str) -> str:
    now = time.time()
    frame = sys._getframe(2)
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now))
    place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    return f"{level}{stamp}.{int(now % 1 * 1e6):06d} {os.getpid()} {place}] "


class _Log(ModuleType):
    """Callable, because pycaffe has a function ``log`` where this module is: ``scaffe.log("...")``."""

    def __call__(self, message: str) -> None:
        if not _quiet:
            write(f"{_prefix('I')}{message}\n")


sys.modules[__name__].__class__ = _Log
