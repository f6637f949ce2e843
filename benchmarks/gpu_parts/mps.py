"""NVIDIA's Multi-Process Service: with it processes compute on one GPU at once; without it they take turns."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
SECONDS = 20.0
"""That a start, a first use and an end may take, each."""
USE = "import cupy; raise SystemExit(int(cupy.arange(3).sum()) != 3)"


@contextmanager
def mps() -> Iterator[tuple[dict[str, str], str]]:
    """Start the service with pipes of its own, try it with one process, and end it.

    Yields:
        the variables by which processes find it, and why there is none; of the two one is empty.
    """
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **places}
        why = f"no {CONTROL} on PATH" if shutil.which(CONTROL) is None else _refusal([CONTROL, "-d"], environment)
        if why:
            yield {}, why
            return
        try:
            why = _refusal([sys.executable, "-c", USE], environment)
            yield ({}, why) if why else (places, "")
        finally:
            _end(environment, Path(folder, f"{CONTROL}.pid"))


def _refusal(command: list[str], environment: Mapping[str, str], words: str = "") -> str:
    """Run a command; why it did not do what it was to do, in a line."""
    try:
        done = subprocess.run(command, env=environment, input=words, capture_output=True, text=True, timeout=SECONDS,
                              check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()[-1]
    return f"{Path(command[0]).name} ends with code {done.returncode}: {said}" if done.returncode else ""


def _end(environment: Mapping[str, str], pid: Path) -> None:
    """Ask the daemon to end, with its server; kill it where it does not."""
    if _refusal([CONTROL], environment, "quit\n") and pid.exists():
        os.kill(int(pid.read_text()), 9)
