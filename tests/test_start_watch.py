"""The watch over ranks that start, beside a program that stands in for MPI's launcher: no MPI is needed."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scaffe import start_watch
from tests.mpirun import mpirun

ROOT = Path(__file__).resolve().parent.parent
LAUNCHER = """
import os, subprocess, sys
body, n_ranks, more = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
ranks = [subprocess.Popen([PYTHON, "-c", body, *more], env=os.environ | {
    "OMPI_MCA_mpi_ft_enable": "1", "PMIX_NAMESPACE": f"prterun-here-{os.getpid()}@{1 + (rank == SPAWNED)}",
    "PMIX_RANK": str(rank * (rank != SPAWNED)), "OMPI_COMM_WORLD_LOCAL_SIZE": N_HERE}) for rank in range(n_ranks)]
codes = [rank.wait() for rank in ranks]
print(*codes)
"""
RANK = """
import ctypes, os, sys, time
from scaffe import start_watch
start_watch.begin()
words = "rank", os.environ["PMIX_RANK"], os.getpid(), start_watch._Own.pid, os.environ["PMIX_NAMESPACE"]
os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # in one piece
"""
IN_MPI_INIT = """
ctypes.PyDLL(None).sleep(100)  # which keeps the interpreter's lock, as mpi4py does
"""
SECONDS = 60


@pytest.fixture
def launch(tmp_path):
    """Starts a launcher whose ranks run some lines; returns it, and the ranks' processes and their watches."""
    (tmp_path / "prterun").symlink_to(Path(sys.executable).resolve())
    started = []

    def start(body, n_ranks, n_here=None, spawned=-1):
        script = LAUNCHER.replace("PYTHON", repr(sys.executable)).replace("N_HERE", repr(str(n_here or n_ranks)))
        script = script.replace("SPAWNED", str(spawned))
        job = subprocess.Popen([tmp_path / "prterun", "-c", script, RANK + body, str(n_ranks)], text=True,
                               env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        lines = [line_of(job).split()[1:] for _ in range(n_ranks)]
        started.extend(int(pid) for _, *pids, _ in lines for pid in pids)
        return job, {spawned if namespace.endswith("@2") else int(rank): (int(pid), int(watch))
                     for rank, pid, watch, namespace in lines}

    yield start
    for pid in started:
        if is_there(pid):
            os.kill(pid, signal.SIGKILL)


def line_of(job):
    """The next line that a job prints, and nothing of what follows: `communicate` does not see what a file object has
    read ahead."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(job.stdout.fileno(), 1)):
        line += byte
    return line.decode()


def is_there(pid):
    return start_watch._stat(pid)[0] not in "ZX"


def wait_until(is_so):
    until = time.monotonic() + SECONDS
    while not is_so() and time.monotonic() < until:
        time.sleep(0.01)
    assert is_so()


def test_a_lost_rank_ends_the_launcher_and_all_ranks_with_one_line(launch):
    job, ranks = launch(IN_MPI_INIT, 3)
    os.kill(ranks[1][0], signal.SIGKILL)
    _, said = job.communicate(timeout=SECONDS)
    assert job.returncode == -signal.SIGTERM
    who = f"rank 1 .process {ranks[1][0]}. was|1 of this node's 3 ranks were"  # the latter: before anybody looked
    assert re.fullmatch(f"rank 0: ({who}) lost while MPI was starting: the job ends\n", said)
    wait_until(lambda: not any(is_there(pid) for pids in ranks.values() for pid in pids))


def test_who_is_lost_is_named(launch):
    job, ranks = launch(IN_MPI_INIT, 3)
    watch = start_watch.Watch(ranks[0][0], job.pid, f"prterun-here-{job.pid}@1", 0, 3, 900)
    assert sorted(watch.living().values()) == [0, 1, 2]
    assert watch.fault() == ""
    os.kill(ranks[2][0], signal.SIGKILL)
    wait_until(lambda: not is_there(ranks[2][0]))
    assert watch.fault() == f"rank 2 (process {ranks[2][0]}) was lost"
    job.kill()


def test_who_may_not_be_looked_at_is_not_missed(launch, monkeypatch):
    """Such as a container's process that has other rights."""
    job, ranks = launch(IN_MPI_INIT, 2, n_here=3)
    watch = start_watch.Watch(ranks[0][0], job.pid, f"prterun-here-{job.pid}@1", 0, 3, 900)
    watch._seconds = start_watch.MISSING_SECONDS + 1
    assert watch.fault() == "1 of this node's 3 ranks were lost"
    watch = start_watch.Watch(ranks[0][0], job.pid, f"prterun-here-{job.pid}@1", 0, 2, 900)
    watch._seconds = start_watch.MISSING_SECONDS + 1
    whole, hidden = start_watch._read, f"/proc/{ranks[1][0]}/environ"
    monkeypatch.setattr(start_watch, "_read", lambda path: "" if path == hidden else whole(path))
    assert watch.fault() == ""
    assert list(watch.living()) == [ranks[0][0]]
    job.kill()


def test_a_spawned_rank_looks_at_those_that_were_there(launch):
    """It waits for the one that wants it, and ends itself alone."""
    job, ranks = launch(IN_MPI_INIT, 3, spawned=2)
    watch = start_watch.Watch(ranks[2][0], job.pid, f"prterun-here-{job.pid}@2", 0, 1, 900)
    assert (watch.fault(), sorted(watch.living())) == ("", sorted(pid for pid, _ in ranks.values()))
    os.kill(ranks[1][0], signal.SIGKILL)
    wait_until(lambda: not is_there(ranks[1][0]))
    assert watch.fault() == f"rank 1 (process {ranks[1][0]}) was lost"
    job.kill()


@pytest.mark.mpi_job
def test_under_mpirun_a_rank_that_dies_before_mpi_starts_ends_the_job(tmp_path):
    """With fault tolerance MPI_Init would wait for it for ever."""
    body = ("import os, signal\nif os.environ['OMPI_COMM_WORLD_RANK'] == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
            "from scaffe.collectives import Communicator\nCommunicator.world()\n")
    launcher, *n_ranks = mpirun(2)
    done = subprocess.run([launcher, "--with-ft", "ulfm", *n_ranks, sys.executable, "-c", body], cwd=tmp_path,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode != 0
    assert re.search("rank 0: .* lost while MPI was starting: the job ends", done.stderr)


@pytest.mark.thorough
def test_a_rank_that_was_lost_before_anybody_looked_is_missed(launch):
    job, _ = launch(IN_MPI_INIT, 2, n_here=3)
    assert job.communicate(timeout=SECONDS)[1].endswith(
        ": 1 of this node's 3 ranks were lost while MPI was starting: the job ends\n")


@pytest.mark.thorough
def test_a_launcher_that_stays_after_the_last_rank_of_its_node_is_ended(launch):
    """The ranks of other nodes would wait for that one."""
    job, ranks = launch(IN_MPI_INIT, 1)
    os.kill(job.pid, signal.SIGSTOP)  # stays
    os.kill(ranks[0][0], signal.SIGKILL)
    wait_until(lambda: not is_there(ranks[0][1]))
    assert job.wait(SECONDS) == -signal.SIGKILL


@pytest.mark.thorough
def test_who_ends_by_itself_is_not_lost_to_those_that_do_the_same(launch):
    job, _ = launch("""
start_watch.fails()
time.sleep(4 * (os.environ["PMIX_RANK"] == "1"))
sys.exit(3)
""", 2)
    assert job.communicate(timeout=SECONDS) == ("3 3\n", "")


def test_nothing_is_left_of_a_watch_that_is_over(launch):
    job, ranks = launch("""
import threading
open_before = len(os.listdir("/proc/self/fd"))
pid = start_watch._Own.pid
start_watch.end()
try:
    os.waitpid(pid, 0)
except ChildProcessError:
    print("reaped", open_before - len(os.listdir("/proc/self/fd")), start_watch._stat(pid)[0])
""", 1)
    assert job.communicate(timeout=SECONDS)[0] == "reaped 1 X\n0\n"


def test_a_watch_holds_nothing_of_its_rank(launch):
    """A launcher waits for the end of its ranks' output; a signal for the rank's group is none for the watch."""
    job, ranks = launch("os.write(1, b'ready\\n')" + IN_MPI_INIT, 1)
    assert line_of(job) == "ready\n"
    rank, watch = ranks[0]
    place = Path(f"/proc/{watch}")
    wait_until(lambda: len(list((place / "fd").iterdir())) == 3 and (place / "cwd").readlink() == Path("/"))
    assert [(place / "fd" / number).readlink() for number in "12"] == [Path("/dev/null")] * 2
    assert os.getpgid(watch) == watch
    assert start_watch._variable(watch, "PMIX_RANK") == ""
    job.kill()
    job.wait(SECONDS)


@pytest.mark.parametrize("variables", [
    {"OMPI_MCA_mpi_ft_enable": ""}, {"PMIX_NAMESPACE": "slurm.pmix.1.0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE": ""},
    {}])
def test_without_a_launcher_that_is_known_nobody_watches(monkeypatch, variables):
    """The last one: the parent of this process is none, whatever the environment says."""
    for name, value in (dict(zip(start_watch.VARIABLES, ("1", "prterun-x-1@1", "0", "1"))) | variables).items():
        monkeypatch.setenv(name, value)
    start_watch.begin()
    assert start_watch._Own.pid == -1
    start_watch.fails()
    start_watch.end()


def test_no_room_for_a_process_more_is_no_harm(monkeypatch):
    def refused(*args, **kwargs):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    n_open = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(os, "posix_spawn", refused)
    monkeypatch.setattr(start_watch, "_launcher", lambda namespace: os.getpid())
    for name, value in zip(start_watch.VARIABLES, ("1", "prterun-x-1@1", "0", "1")):
        monkeypatch.setenv(name, value)
    start_watch.begin()
    assert start_watch._Own.pid == -1
    assert len(list(Path("/proc/self/fd").iterdir())) == n_open


def test_the_kernels_list_of_children_is_the_one_of_all_processes(monkeypatch):
    with subprocess.Popen(["sleep", "100"]) as child:
        assert child.pid in start_watch._children(os.getpid())
        whole = start_watch._read
        monkeypatch.setattr(start_watch, "_read", lambda path: "" if path.endswith("children") else whole(path))
        assert child.pid in start_watch._children(os.getpid())
        child.kill()


@pytest.mark.parametrize(("word", "seconds"), [("x", 900), ("", 900), ("300", 300), ("60.5", 60.5), ("3", 60)])
def test_a_start_has_a_minute_however_short_the_deadline_of_calls(word, seconds):
    assert start_watch._seconds(word) == seconds
