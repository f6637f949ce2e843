"""Runs of `scaffe train` that are all there at once, of which one computes at a time, so that a machine whose speed
changes within minutes changes for all of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

PACE = re.compile(r"Iteration (\d+) \((\S+) iter/s")


class Turn:
    """One run, stopped but for its turns.

    Args:
        command: what to run; it shows each iteration.
        folder: where.

    Attributes:
        text: what it has shown so far.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._process = subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT)
        self.text = ""

    def go(self, n_iterations: int) -> list[float]:
        """Let it do so many iterations. Returns those a second, of each; the first may have waited for its turn."""
        os.kill(self._process.pid, signal.SIGCONT)
        found = list[float]()
        while len(found) < n_iterations:
            line = self._shown.readline()
            if not line:
                raise SystemExit(self.text.strip().splitlines()[-1])
            self.text += line
            found += [float(pace) for _, pace in PACE.findall(line)]
        os.kill(self._process.pid, signal.SIGSTOP)
        return found

    def end(self) -> tuple[int, int]:
        """Let it come to its end. Returns its peak of resident memory in bytes, and its page faults."""
        os.kill(self._process.pid, signal.SIGCONT)
        self.text += self._shown.read()
        _, status, used = os.wait4(self._process.pid, 0)
        if status:
            raise SystemExit(self.text.strip().splitlines()[-1])
        return used.ru_maxrss * 1024, used.ru_minflt

    def kill(self) -> None:
        """End it now, if it runs."""
        if self._process.poll() is None:
            self._process.kill()

    @property
    def _shown(self) -> IO[str]:
        if self._process.stdout is None:
            raise RuntimeError("a run shows nothing")
        return self._process.stdout
