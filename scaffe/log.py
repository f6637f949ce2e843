"""Caffe's log: lines in glog's format on standard error and, if asked for, in a file; rank 0 writes them.

If the log cannot be written (disk full, reader gone) lines are lost, but the run continues.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import TextIO

from scaffe.live_line import LiveLine, terminal_of_log
from scaffe.proto.byte_text import shown

INFO, WARNING, ERROR = 0, 1, 2
LEAST = os.environ.get("GLOG_minloglevel", "")  # noqa: SIM112 - its real name

_quiet = False
_least = int(LEAST) if LEAST.isdecimal() else INFO
_folder = os.environ.get("GLOG_log_dir", "")  # noqa: SIM112
_file: TextIO | None = None
_live: LiveLine | None = None


def silence(quiet: bool) -> None:
    """Write nothing from now on (ranks other than 0)."""
    global _quiet
    _quiet = quiet


def is_silent() -> bool:
    """Whether ``silence`` said so."""
    return _quiet


def set_level(least: int) -> None:
    """Set the least level to log (INFO, WARNING, ERROR); the initial one is ``GLOG_minloglevel``."""
    global _least
    _least = least


def keep_in(folder: str) -> None:
    """Also write the lines to a file in ``folder``, named as glog does; the link ``caffe.INFO`` points to it."""
    global _folder
    _folder = folder


def info(message: str) -> None:
    """Log a message at level INFO, as ``I1121 02:44:01.123456 4711 solver.py:60] message``."""
    _say(INFO, message)


def warning(message: str) -> None:
    """Log a message at level WARNING, with W in front."""
    _say(WARNING, message)


def error(message: str) -> None:
    """Log a message at level ERROR, with E in front."""
    _say(ERROR, message)


def _say(level: int, message: str) -> None:
    """Write a line of the caller's caller."""
    if _quiet or _least > level:
        return
    now, frame = time.time(), sys._getframe(2)
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now))
    place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    _put(f"{'IWE'[level]}{stamp}.{int(now % 1 * 1e6):06d} {os.getpid()} {place}] {message}\n")


def write(text: str) -> None:
    """Write text to standard error in one piece, so that lines of several ranks do not mix; drop it on failure."""
    clear_live()
    if sys.stderr is None or sys.stderr.closed:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _write_through()


def begin_live() -> bool:
    """Find the terminal on which the log is read, for ``live``; returns whether there is one."""
    global _live
    terminal = terminal_of_log() if _live is None else None
    if terminal is not None:
        _live = LiveLine(terminal)
    return _live is not None


def live(text: str) -> None:
    """Draw the live line, in no file and on a terminal alone, after ``begin_live``."""
    if _live is not None:
        _live.show(text)


def clear_live() -> None:
    """Erase the live line, for text that is not written by this module."""
    if _live is not None:
        _live.clear()


def _write_through() -> None:
    """Give standard error no buffer: the lines that failed would lie in it, and fail again as the process ends."""
    with contextlib.suppress(OSError):  # a stream without a descriptor
        raw = io.FileIO(sys.stderr.fileno(), "w", closefd=False)
        sys.stderr = io.TextIOWrapper(raw, errors="backslashreplace", write_through=True)


def _put(text: str) -> None:
    global _folder
    text = shown(text)
    write(text)
    if _folder:
        try:
            _log_file().write(text)
        except OSError as error:  # a log is no reason to stop
            write(f"{_folder}: the log cannot be written there ({(error.strerror or str(error)).lower()}); "
                  "it goes on here alone\n")
            _folder = ""


def _log_file() -> TextIO:
    """The file of ``keep_in``, opened when the first line comes. Raises OSError."""
    global _file
    if _file is None:
        started = time.strftime("%Y%m%d-%H%M%S")
        user = os.environ.get("USER") or os.getuid()
        name = f"caffe.{socket.gethostname()}.{user}.log.INFO.{started}.{os.getpid()}"
        _file = (Path(_folder) / name).open("x", buffering=1)  # follows no link; line by line: people watch it
        link = Path(_folder) / "caffe.INFO"
        link.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):  # of another run that started just now
            link.symlink_to(name)
    return _file


class _Log(ModuleType):
    """Callable, because pycaffe has a function ``log`` where this module is: ``scaffe.log("...")``."""

    def __call__(self, message: str) -> None:
        _say(INFO, message)


sys.modules[__name__].__class__ = _Log
