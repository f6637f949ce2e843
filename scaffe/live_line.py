"""A line at the bottom of a terminal that is redrawn again and again, also under an MPI launcher.

A launcher reads its ranks' standard error from a pipe and copies it to its own, which may be a file. Control characters
do not belong there, so the line is written to the terminal itself.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ERASE = "\r\x1b[K"
SETTLE_SECONDS = 0.2  # what was just logged may still be on its way through the launcher
LAUNCHERS = {"prterun", "prted", "orterun", "orted", "mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy",
             "hydra_bstrap_pr"}
"""Programs that copy their ranks' output to their own (Open MPI, MPICH, Intel MPI), as Linux calls them: 15 letters."""
OPEN = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # not blocking: Ctrl-S stops no training


class LiveLine:
    """One line on a terminal. Lines logged elsewhere take its place: call ``clear`` before them.

    Args:
        descriptor: an open terminal.
    """

    def __init__(self, descriptor: int) -> None:
        self._terminal = descriptor
        self._is_shown = False
        self._cleared = float("-inf")

    def show(self, text: str) -> None:
        """Draw the line, cut to the terminal's width, unless it was cleared just now."""
        if time.monotonic() - self._cleared < SETTLE_SECONDS:
            return
        self._is_shown = True
        self._write(f"{ERASE}{text[:self._n_columns() - 1]}\r")  # the cursor in front: others' lines cover the text

    def clear(self) -> None:
        """Erase the line; it stays away for ``SETTLE_SECONDS``."""
        self._cleared = time.monotonic()
        if self._is_shown:
            self._is_shown = False
            self._write(ERASE)

    def _n_columns(self) -> int:
        with suppress(OSError):
            return os.get_terminal_size(self._terminal).columns or 80
        return 80

    def _write(self, text: str) -> None:
        """Write, or drop what the terminal does not take. Launchers put ranks in the background, where `stty tostop`
        would stop them for it."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            with suppress(OSError):
                os.write(self._terminal, text.encode(errors="replace"))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def terminal_of_log() -> int | None:
    """Open the terminal on which this process's standard error is read, directly or through launchers.

    From pipe to pipe, it asks which launcher reads it, and where that one's standard error goes (Linux's /proc).

    Returns:
        a descriptor of its own; None where the output goes elsewhere (a file, another program, another node).
    """
    if os.environ.get("TERM") == "dumb":
        return None
    process: int | None = os.getpid()
    while process is not None:
        target = _link(f"/proc/{process}/fd/2")
        if target.startswith("/dev/"):
            return _open_terminal(f"/proc/{process}/fd/2")
        process = next((parent for parent in _launchers(process) if _reads(parent, target)), None)
    return None


def _open_terminal(path: str) -> int | None:
    """The descriptor, if the path is a terminal."""
    with suppress(OSError):
        descriptor = os.open(path, OPEN)
        if os.isatty(descriptor):
            return descriptor
        os.close(descriptor)
    return None


def _launchers(process: int) -> Iterator[int]:
    """The launchers among the processes that started this one, the nearest first."""
    with suppress(OSError, ValueError, IndexError):
        while process:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
            if process and Path(f"/proc/{process}/comm").read_text().strip() in LAUNCHERS:
                yield process


def _reads(process: int, pipe: str) -> bool:
    """Whether a process has the reading end of a pipe (or a socket's one end) among its descriptors."""
    with suppress(OSError):
        return any(_link(str(descriptor)) == pipe and _is_read(process, descriptor.name)
                   for descriptor in Path(f"/proc/{process}/fd").iterdir())
    return False


def _is_read(process: int, number: str) -> bool:
    with suppress(OSError, ValueError, IndexError):
        flags = Path(f"/proc/{process}/fdinfo/{number}").read_text().partition("flags:")[2].split()[0]
        return int(flags, 8) & os.O_ACCMODE == os.O_RDONLY
    return False


def _link(path: str) -> str:
    """Where a link points; empty if that cannot be read."""
    with suppress(OSError):
        return str(Path(path).readlink())
    return ""
