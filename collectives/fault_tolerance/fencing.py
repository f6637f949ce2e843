"""Suspended processes (SIGSTOP, a laptop asleep): a clock that does not count the time, and fencing.

A rank that is stopped for longer than the deadline is killed by another one of its machine, and the others go on
without it. A late SIGCONT would let it write into windows, snapshots and logs that are theirs now. SIGKILL takes effect
before a stopped process runs another instruction.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from scaffe.threads import Thread

LONGEST_SECONDS = 5.0
"""More than this between two readings counts as this much: the process has not been running."""


class SuspendAwareClock:
    """A clock of the seconds since it was made, without those in which this process was suspended.

    Time limits that it measures do not run out where all ranks get SIGSTOP (a scheduler that suspends jobs, Ctrl-Z).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: gives seconds."""
        self._clock, self._last, self._seconds = clock, clock(), 0.0

    def seconds(self) -> float:
        """The seconds so far. To be called several times in LONGEST_SECONDS: a longer gap counts as a suspension."""
        now = self._clock()
        self._seconds += min(now - self._last, LONGEST_SECONDS)
        self._last = now
        return self._seconds


K = TypeVar("K", bound=Hashable)


class SuspendedProcesses(Generic[K]):
    """Finds the processes that have been stopped for too long.

    An observer that was stopped itself begins to count anew: when a suspended job goes on, its ranks wake up one after
    another.
    """

    def __init__(self) -> None:
        self._since: dict[K, float] = {}
        self._last = float("-inf")

    def look(self, now: float, stopped: Collection[K], deadline: float, longest_gap: float) -> list[K]:
        """Records which processes are stopped now.

        Args:
            now: seconds.
            deadline: seconds that are too long.
            longest_gap: seconds since the last call, above which this process itself has been stopped.

        Returns:
            Keys of those that were stopped in every call for longer than the deadline.
        """
        if now - self._last > longest_gap:
            self._since.clear()
        self._last = now
        self._since = {key: self._since.get(key, now) for key in stopped}
        return [key for key, since in self._since.items() if now - since > deadline]


LOOK_SECONDS = (0.1, 5.0)
LOOKS_A_DEADLINE = 20
LONGEST_GAP_SECONDS = 1.0


class Process(NamedTuple):
    """One rank's process.

    Attributes:
        machine: where its number means something: the machine's, and its container's.
        pid: its number there.
        start: when it was started, in ticks since the machine was: another process may get the same number later.
    """

    machine: tuple[str, str]
    pid: int
    start: str
    rank: int


class Fence:
    """Watches the other ranks' processes on this machine in a thread; one object a process."""

    def __init__(self) -> None:
        self._others: set[Process] = set()
        self._deadline = float("inf")
        self._lock = threading.Lock()
        self._thread: Thread | None = None

    def watch(self, comm: Any, deadline: float) -> None:
        """Watches the ranks of mpi4py's `comm` too from now on. All of them call it. ``deadline``: seconds for which
        one of them may be stopped. The shortest that was given counts."""
        own = this_process()
        others = {other for other in comm.allgather(own) if other.machine == own.machine and other.pid != own.pid}
        with self._lock:
            self._others |= others
            self._deadline = min(deadline, self._deadline)
            if self._thread is None and self._others:
                self._thread = Thread(self._run, "collectives-fence")
                self._thread.start()

    def _run(self) -> None:
        stopped = SuspendedProcesses[Process]()
        while True:
            deadline = self._deadline
            pause = min(max(deadline / LOOKS_A_DEADLINE, LOOK_SECONDS[0]), LOOK_SECONDS[1])
            time.sleep(pause)
            with self._lock:
                states = {other: state for other in self._others if (state := state_of(other))}
                self._others = set(states)
            still = [other for other, state in states.items() if state == "T"]
            for late in stopped.look(time.monotonic(), still, deadline, 2 * pause + LONGEST_GAP_SECONDS):
                end(late, deadline)


def this_process() -> Process:
    """The calling process, as ranks describe theirs to one another."""
    from mpi4py import MPI

    with suppress(OSError):
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip(), str(Path("/proc/self/ns/pid").readlink())
        return Process(machine, os.getpid(), _stat(os.getpid())[19], MPI.COMM_WORLD.rank)
    return Process(("", str(MPI.COMM_WORLD.rank)), os.getpid(), "", MPI.COMM_WORLD.rank)  # a machine of its own


def state_of(process: Process) -> str:
    """Its state as in /proc: "T" where it is stopped (not by a debugger); empty where it is gone."""
    with suppress(OSError, IndexError):
        fields = _stat(process.pid)
        return fields[0] if fields[19] == process.start and fields[0] not in "ZX" else ""
    return ""


def end(process: Process, deadline: float) -> None:
    """Kills a stopped process and writes a line about it. ``deadline``: seconds for which it was stopped, for the
    line."""
    if state_of(process) != "T":
        return
    with suppress(OSError):
        os.kill(process.pid, signal.SIGKILL)
        sys.stderr.write(f"rank {process.rank} of the job (process {process.pid}) was stopped for more than "
                         f"{deadline:g} s: it counts as lost, and was ended\n")


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


FENCE = Fence()
"""Of this process."""
