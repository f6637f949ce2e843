"""Watches the ranks of a node while MPI starts, in a small process of its own beside each rank.

With `mpirun --with-ft ulfm` the launcher does not end the other ranks with a lost one, and MPI_Init waits for that one
for ever. mpi4py holds the interpreter's lock meanwhile, so that no thread of the rank could notice. After MPI's first
agreement, MPI itself reports lost ranks.

This module imports little, and nothing of ours: a rank starts with it, and the watching process runs this file alone.
"""

# ruff: noqa: PTH116, PTH120, PTH208 - pathlib, contextlib, typing and signal take longer to load than all of this
from __future__ import annotations

import os
import select
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLES = "OMPI_MCA_mpi_ft_enable", "PMIX_NAMESPACE", "PMIX_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"
SIGKILL, SIGTERM = 9, 15
LAUNCHERS, OF_ITS_OWN = ("mpirun", "mpiexec", "prterun", "prted"), "prterun-"
"""Processes that start ranks, and how a job's name begins whose launcher has no other jobs."""
AT_FIRST = "@1"
"""How the name of those ends that the launcher has started by itself, and not for a rank (MPI_Comm_spawn)."""
LOOK_SECONDS, RANKS_A_LOOK = 0.1, 8
"""More ranks look less often, so that all looks together do not cost more."""
MISSING_SECONDS = 2.0
"""After these a rank is lost that the launcher has not started, or that died before anybody looked."""
GRACE_SECONDS, NEWCOMERS_SECONDS = 2.0, 10.0
"""In which a rank may end by itself, as all do that make the same mistake, or get through; one that has been spawned
does so where another rank is lost than the one that wants it."""
FAILED_SECONDS = 12.0
"""In which the other nodes' ranks may make the same mistake: more than they leave rank 0 to say it first."""
TURN_SECONDS = 1.5
"""For the one that ends the job, before another one does."""
END_SECONDS = 3.0
LINE_SECONDS, PASSING_ON_SECONDS = 1.0, 0.2
DEADLINE_VARIABLE, DEADLINE_SECONDS, LEAST_DEADLINE_SECONDS = "SCAFFE_DEADLINE", 900.0, 60.0
"""What a start has at least: on a busy node it takes longer than a short deadline for calls."""
CODE = "import sys; sys.path.append(sys.argv[1]); import start_watch; start_watch.main(sys.argv[2:])"


class _suppress:
    """As contextlib's."""

    def __init__(self, *kinds: type[Exception]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


class _Own:
    """The process that watches for this one: its number, and what tells it that this rank ends without MPI."""

    pid = pipe = -1


def begin() -> None:
    """Begins the watch, once, where this process is a rank that may be lost and whose MPI has not been started.

    Without a launcher that can be seen, or room for a process more, there is none.
    """
    is_asked_for, namespace, rank, n_here = (os.environ.get(name, "") for name in VARIABLES)
    if _Own.pid >= 0 or is_asked_for.lower() not in ("1", "true", "yes", "enabled") or "mpi4py.MPI" in sys.modules:
        return
    if not namespace.startswith(OF_ITS_OWN) or not n_here.isdigit() or (launcher := _launcher(namespace)) is None:
        return
    words = [str(os.getpid()), str(launcher), namespace, rank, n_here, os.environ.get(DEADLINE_VARIABLE, "")]
    with _suppress(OSError):
        _spawn([sys.executable, "-I", "-S", "-c", CODE, os.path.dirname(__file__), *words])


def _spawn(command: list[str]) -> None:
    """Nothing of this process is held open there: a launcher waits for the end of its ranks' output."""
    reading, writing = os.pipe()
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        _Own.pid = os.posix_spawn(
            command[0], command, {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0), (os.POSIX_SPAWN_DUP2, null, 1),
                          (os.POSIX_SPAWN_DUP2, null, 2)], setpgroup=0)  # signals for the rank are none for it
        _Own.pipe = writing
    except OSError:
        os.close(writing)
        raise
    finally:
        os.close(reading)
        os.close(null)


def fails() -> None:
    """This rank ends by itself, and so do all others, if the mistake is one of all: nobody waits in MPI here."""
    with _suppress(OSError):
        os.write(_Own.pipe, b".")


def end() -> None:
    """All ranks have come through: the watch is over, and nothing is left of it."""
    pid, pipe = _Own.pid, _Own.pipe
    if pid < 0:
        return
    _Own.pid = _Own.pipe = -1
    with _suppress(OSError):
        if os.waitpid(pid, os.WNOHANG)[0] == 0:
            os.kill(pid, SIGKILL)
            os.waitpid(pid, 0)
    os.close(pipe)


def root_has_loaded_mpi(variable: str) -> bool:
    """Whether rank 0, if this rank's launcher has started it too, has loaded mpi4py. ``variable``: of the environment,
    in which the launcher gives ranks."""
    return any(_variable(pid, variable) == "0" and "/mpi4py/" in _read(f"/proc/{pid}/maps")
               for pid in _children(os.getppid()))


def _launcher(namespace: str) -> int | None:
    """The process that has started this rank, maybe by way of a script; None where it is none that is known."""
    pid = os.getppid()
    while pid > 1 and _variable(pid, "PMIX_NAMESPACE") == namespace:
        pid = int(_stat(pid)[1])
    return pid if _read(f"/proc/{pid}/comm").strip() in LAUNCHERS else None


class Watch:
    """What the process that watches for one rank knows.

    Args:
        pid, rank: the rank's.
        launcher: the process that has started this node's ranks.
        namespace: the name of those that were started together.
        n_here: how many of these this node has.
        deadline: seconds after which MPI should have started.

    Attributes:
        others: the ranks of this node that have been seen, this one too, by their processes' numbers: when each was
            started, and its rank. A spawned rank counts those of the whole job.
    """

    def __init__(self, pid: int, launcher: int, namespace: str, rank: int, n_here: int, deadline: float) -> None:
        self.others: dict[int, tuple[str, int]] = {}
        self._pid, self._launcher, self._rank, self._deadline = pid, launcher, rank, deadline
        self._is_spawned = not namespace.endswith(AT_FIRST)
        self._family = namespace.rpartition("@")[0] + "@" if self._is_spawned else namespace
        self._launched = _stat(launcher)[19]
        self._n_here = len(list(self._ranks())) if self._is_spawned else n_here
        self._grace = NEWCOMERS_SECONDS if self._is_spawned else GRACE_SECONDS
        self._pause = LOOK_SECONDS * max(1.0, n_here / RANKS_A_LOOK)
        self._seconds = 0.0
        self._fails, self._hears = False, True

    def run(self) -> None:
        """Returns when this rank or the job has ended; a rank that has come through ends this process."""
        since = 0.0
        while self._wait():
            fault = "" if self._fails else self.fault()
            since = self._seconds if not fault else since
            if self._seconds - since > self._grace:
                return self._end_rank() if self._is_spawned else self._end_job(fault)
        until = time.monotonic() + (FAILED_SECONDS if self._fails else self._grace)  # the rank is gone
        while not self._is_spawned and _lives(self._launcher, self._launched) and time.monotonic() < until:
            time.sleep(self._pause)
        if not self._is_spawned and not self.living():
            self._end_job(f"process {self._pid}, alone on its node, was lost")
        return None

    def fault(self) -> str:
        """Says who is lost; empty as long as nobody is."""
        living = self.living()
        for pid, (_, rank) in self.others.items():
            if pid not in living:
                return f"rank {rank} (process {pid}) was lost"
        if self._seconds > MISSING_SECONDS and (n_missing := self._n_missing()) > 0:
            return f"{n_missing} of this node's {self._n_here} ranks were lost"
        return f"not all ranks came within {self._deadline:g} s" if self._seconds > self._deadline else ""

    def living(self) -> dict[int, int]:
        """The ranks of this node that live, by their processes' numbers."""
        if len(self.others) < self._n_here:
            for pid in self._ranks():
                self.others.setdefault(pid, (_stat(pid)[19], int(_variable(pid, "PMIX_RANK") or -1)))
        return {pid: rank for pid, (start, rank) in self.others.items() if _lives(pid, start)}

    def _n_missing(self) -> int:
        """Ranks of this node that nobody has seen; who may not be looked at (a container's) may be one."""
        if len(self.others) == self._n_here:
            return 0
        unknown = [pid for pid in _children(self._launcher)
                   if pid not in self.others and not _read(f"/proc/{pid}/environ") and _stat(pid)[0] not in "ZX"]
        return self._n_here - len(self.others) - len(unknown)

    def _ranks(self) -> Iterator[int]:
        return (pid for pid in _children(self._launcher) if _variable(pid, "PMIX_NAMESPACE").startswith(self._family))

    def _wait(self) -> bool:
        """Waits for the next look, and counts the time in which nothing was stopped. Whether the rank lives."""
        before = time.monotonic()
        if self._hears and select.select([0], [], [], self._pause)[0]:
            self._fails, self._hears = os.read(0, 1) != b"", False
        elif not self._hears:
            time.sleep(self._pause)
        if not {_stat(self._pid)[0], _stat(self._launcher)[0]} & {"T", "t"}:
            self._seconds += min(time.monotonic() - before, 3 * self._pause)
        return os.getppid() == self._pid

    def _end_job(self, fault: str) -> None:
        """One of the node's watches says the line and asks the launcher to end the job; another one, where it stays."""
        if self._rank > min(self.living().values(), default=self._rank):
            time.sleep(TURN_SECONDS)
        if _lives(self._launcher, self._launched):
            source = self._pid if os.getppid() == self._pid else self._launcher
            say(source, f"rank {self._rank}: {fault} while MPI was starting: the job ends\n")
            self._signal(SIGTERM)
            until = time.monotonic() + END_SECONDS
            while _lives(self._launcher, self._launched) and time.monotonic() < until:
                time.sleep(LOOK_SECONDS)
            self._signal(SIGKILL)
        self._end_rank()

    def _end_rank(self) -> None:
        if os.getppid() == self._pid:
            os.kill(self._pid, SIGKILL)

    def _signal(self, number: int) -> None:
        if _lives(self._launcher, self._launched):
            with _suppress(OSError):
                os.kill(self._launcher, number)


def say(pid: int, line: str) -> None:
    """Write a line where another process's standard error goes, and wait until it has been read there.

    In a file that it does not append to, what it writes next would take the line's place.
    """
    import signal

    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # a terminal may stop who is not in front
    with _suppress(OSError, IndexError, ValueError):
        path, flags = f"/proc/{pid}/fd/2", int(_read(f"/proc/{pid}/fdinfo/2").split()[3], 8)
        if stat.S_ISREG(os.stat(path).st_mode) and not flags & os.O_APPEND:
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            os.write(descriptor, line.encode())
            until = time.monotonic() + LINE_SECONDS
            while _n_unread(descriptor) and time.monotonic() < until:
                time.sleep(LOOK_SECONDS / 10)
        finally:
            os.close(descriptor)
        time.sleep(PASSING_ON_SECONDS)


def main(words: list[str]) -> None:
    """The process that watches; its words are Watch's."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with _suppress(OSError):
                os.close(int(name))
    os.chdir("/")
    with _suppress(OSError, ValueError, IndexError):
        Watch(int(words[0]), int(words[1]), words[2], int(words[3]), int(words[4]), _seconds(words[5])).run()
    os._exit(0)


def _seconds(word: str) -> float:
    with _suppress(ValueError):
        return max(float(word), LEAST_DEADLINE_SECONDS)
    return DEADLINE_SECONDS


def _n_unread(descriptor: int) -> int:
    """Bytes that a pipe holds; 0 for what is no pipe."""
    import fcntl
    import termios

    with _suppress(OSError):
        return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)
    return 0


def _children(pid: int) -> Iterator[int]:
    """The processes that a process has started, by a list of the kernel's where it keeps one."""
    tasks = f"/proc/{pid}/task"
    with _suppress(OSError):
        found = [_read(f"{tasks}/{task}/children") for task in os.listdir(tasks)]
        if any(found):
            yield from (int(word) for words in found for word in words.split())
            return
    yield from (int(name) for name in os.listdir("/proc") if name.isdigit() and _stat(int(name))[1] == str(pid))


def _lives(pid: int, start: str) -> bool:
    state = _stat(pid)
    return state[0] not in "ZX" and state[19] == start


def _stat(pid: int) -> list[str]:
    """What /proc says after the name: the state, the parent, and when it was started (19); states of a process that
    is gone are "X"."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split() or ["X", *["0"] * 19]


def _variable(pid: int, name: str) -> str:
    """A variable of another process's environment; empty where there is none."""
    found = _read(f"/proc/{pid}/environ").split("\0")
    return next((word.partition("=")[2] for word in found if word.startswith(f"{name}=")), "")


def _read(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    with _suppress(OSError), os.fdopen(descriptor, "rb") as file:
        return file.read().decode(errors="surrogateescape")
    return ""
