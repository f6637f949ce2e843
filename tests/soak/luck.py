"""What happens to runs: each takes the started process (mpirun, or the one rank) and a source of chance."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

LATEST_SECONDS = 8.0  # by then most runs are over, under load too
N_SIGNALS = 300


def ranks(process: subprocess.Popen[str]) -> list[int]:
    """The processes below mpirun, or the process itself."""
    try:
        found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except OSError:
        found = []
    return [int(pid) for pid in found] or [process.pid]


def _send(process: subprocess.Popen[str], pid: int, number: int) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill(process: subprocess.Popen[str], chance: random.Random) -> None:
    """SIGKILL to a rank or to mpirun."""
    time.sleep(chance.uniform(0, LATEST_SECONDS))
    _send(process, chance.choice([process.pid, *ranks(process)]), signal.SIGKILL)


def stop(process: subprocess.Popen[str], chance: random.Random) -> None:
    """SIGSTOP to a rank, SIGCONT a while later, up to five times."""
    for _ in range(chance.randint(1, 5)):
        time.sleep(chance.uniform(0, LATEST_SECONDS / 4))
        pid = chance.choice(ranks(process))
        _send(process, pid, signal.SIGSTOP)
        time.sleep(chance.uniform(0, 1))
        _send(process, pid, signal.SIGCONT)


def storm(process: subprocess.Popen[str], chance: random.Random) -> None:
    """Hundreds of signals that have no effect, then one that stops."""
    time.sleep(chance.uniform(0.5, LATEST_SECONDS / 2))  # a signal before Python runs has its default action
    for _ in range(N_SIGNALS):
        _send(process, chance.choice(ranks(process)), chance.choice((signal.SIGHUP, signal.SIGUSR2, signal.SIGWINCH)))
        time.sleep(chance.expovariate(500))
    _send(process, chance.choice(ranks(process)), signal.SIGUSR1)


def warn(process: subprocess.Popen[str], chance: random.Random) -> None:
    """SLURM's warning, at any moment, to all ranks."""
    time.sleep(chance.uniform(0.5, LATEST_SECONDS))
    for pid in ranks(process):
        _send(process, pid, signal.SIGTERM)


def killed_while_stopped(process: subprocess.Popen[str], chance: random.Random) -> None:
    """SIGSTOP to a rank, then SIGKILL to mpirun or the rank."""
    time.sleep(chance.uniform(0, LATEST_SECONDS))
    pid = chance.choice(ranks(process))
    _send(process, pid, signal.SIGSTOP)
    time.sleep(chance.uniform(0, 1))
    _send(process, pid, signal.SIGKILL)


def pipe(process: subprocess.Popen[str], chance: random.Random) -> None:
    """The log's reader goes away, as head does."""
    assert process.stderr is not None  # noqa: S101
    for _ in range(chance.randint(0, 300)):
        if not process.stderr.readline():
            break
    process.stderr.close()


def disk(process: subprocess.Popen[str], chance: random.Random) -> None:
    """The disk is full: set when the process was started."""


KINDS: dict[str, Callable[[subprocess.Popen[str], random.Random], None]] = {
    "kill": kill, "stop": stop, "storm": storm, "warn": warn, "killed while stopped": killed_while_stopped,
    "pipe": pipe, "disk": disk}
