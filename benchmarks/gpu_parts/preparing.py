"""What PyTorch compiles beside other parts' preparation: Inductor keeps it on disk for the process that measures."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Compilation(NamedTuple):
    """One net, one way.

    Attributes:
        what: a name for it.
        command: ends once it is compiled.
    """

    what: str
    command: Sequence[str]


class Preparing:
    """Compilations that run one after another in the background, from now on.

    Args:
        compilations: the longest first.
        env, cwd: environment and folder of their commands.

    Attributes:
        seconds: what each took, by name, of those that have succeeded.
        errors: last words of the others that have ended.
    """

    def __init__(self, compilations: Sequence[Compilation], env: Mapping[str, str], cwd: Path) -> None:
        self.seconds: dict[str, float] = {}
        self.errors: dict[str, str] = {}
        self._env, self._cwd, self._ends = env, cwd, threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, args=(list(compilations),), daemon=True)
        self._thread.start()

    def _run(self, compilations: Sequence[Compilation]) -> None:
        for each in compilations:
            with self._lock:  # it is either ended by ``finish`` or not begun
                if self._ends.is_set():
                    return
                self._process = subprocess.Popen(each.command, env=self._env, cwd=self._cwd, text=True,
                                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            started = time.monotonic()
            _, errors = self._process.communicate()
            if self._process.returncode == 0:
                self.seconds[each.what] = time.monotonic() - started
            elif not self._ends.is_set():
                self.errors[each.what] = (errors.strip().splitlines() or ["no message"])[-1]

    def finish(self, seconds: float) -> None:
        """Wait so long at the most; end what still runs, so that it disturbs no measurement."""
        self._thread.join(max(seconds, 0))
        with self._lock:
            self._ends.set()
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()
        self._thread.join()

    def why_not(self, what: str) -> str:
        """Why a net is not compiled; empty where it is."""
        return "" if what in self.seconds else self.errors.get(what, "not compiled in the time there was")
