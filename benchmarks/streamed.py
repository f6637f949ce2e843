"""Commands whose lines are read as they come, with a time limit."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

LAST_SECONDS = 10  # that a command has to end its own ranks


class Streamed:
    """One run of a command; iterate over its lines, then look at how it ended.

    Args:
        command: the words.
        seconds: after which it is told to end, and killed where it does not.
        env, cwd: its environment and folder.

    Attributes:
        code: the exit code, once the lines have ended.
        is_late: whether its time ran out.
        errors: what it wrote to standard error.
    """

    def __init__(self, command: Sequence[str], seconds: float, env: Mapping[str, str], cwd: Path) -> None:
        self._words, self._seconds, self._env, self._cwd = command, seconds, env, cwd
        self.code, self.is_late, self.errors = 0, False, ""

    def __iter__(self) -> Iterator[str]:
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(self._words, stdout=subprocess.PIPE, stderr=errors, text=True, env=self._env,
                                       cwd=self._cwd)
            timer = threading.Timer(self._seconds, self._end, (process,))
            timer.start()
            try:
                yield from process.stdout or ()
            except BaseException:
                process.terminate()
                raise
            finally:
                timer.cancel()
                self.code = _wait(process)
                errors.seek(0)
                self.errors = errors.read()

    def _end(self, process: subprocess.Popen[str]) -> None:
        self.is_late = True
        process.terminate()
        _wait(process)


def _wait(process: subprocess.Popen[str]) -> int:
    try:
        return process.wait(LAST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
