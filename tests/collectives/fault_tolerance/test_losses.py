"""A rank that is killed is named on all others, and these go on without it (ULFM, which Open MPI 5 has)."""

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.errors import RankLost
from scaffe.collectives.fault_tolerance import ulfm
from tests.collectives.test_mpi import job
from tests.mpirun import ROOT, mpirun

HERE = Path(__file__).parent
FT = ["--with-ft", "ulfm"]


def job_with_losses(n_ranks, *arguments, timeout=600, **environment):
    """As `job`, with ranks that may be lost."""
    launcher = mpirun(n_ranks)
    command = [launcher[0], *FT, *launcher[1:], sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, cwd=ROOT,
                          env=os.environ | environment)


def first_that_ends(*arguments):
    """Open MPI 5.0.11's launcher stays, 2 of 34 times, with no rank left, where all ranks abort at a loss."""
    for _ in range(2):
        with suppress(subprocess.TimeoutExpired):
            return job_with_losses(*arguments, timeout=60)
    return job_with_losses(*arguments, timeout=60)


@pytest.mark.mpi_job
def test_ranks_are_lost_one_after_another_and_the_rest_goes_on():
    result = job_with_losses(5, HERE / "losses_worker.py", "0,0,0,1,1")
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(next(line for line in result.stdout.splitlines() if line.startswith("[[")))
    assert len(found) == 4
    for number, (what, victim, lost, n_left, is_right, n_nodes) in enumerate(found):
        assert (lost, n_left, is_right) == ([victim], 4 - number, True), what
        assert n_nodes <= 2
    assert found[0][-1] == 2  # the labels of nodes live on


@pytest.mark.mpi_job
def test_the_example_goes_on():
    result = job_with_losses(4, "examples/lost_rank.py")
    assert result.returncode == 0, result.stderr[-3000:]
    assert len(re.findall(r"rank \d: rank 2 is lost", result.stdout)) == 3
    assert sorted(re.findall(r"rank \d of \d is done", result.stdout)) == [f"rank {r} of 3 is done" for r in range(3)]


@pytest.mark.mpi_job
def test_an_uncaught_loss_ends_the_job_with_a_line():
    body = ("import os, signal\nfrom scaffe.collectives import Communicator\nc = Communicator.world()\n"
            "c.install_excepthook()\nc.barrier()\nif c.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\nc.barrier()")
    result = first_that_ends(3, "-c", body)  # its exit code is now and then that of nobody, 0
    assert re.search(r"^rank [02]: rank 1 is lost", result.stderr, re.M)
    assert "Traceback" not in result.stderr


FOUND_WHILE_TIME_RUNS_OUT = """
import os, signal, time
from scaffe.collectives import Communicator
from scaffe.collectives.errors import RankLost
from scaffe.collectives.runtime.mismatch import MismatchDetector
c, late = Communicator.world(), MismatchDetector.late
c.install_excepthook()
x, pids, watch = c.alloc(1000), c.allgather_objects(os.getpid()), c._ranks.engine.watch

def late_while_a_loss_is_found(calls):
    if c.rank == 0:
        os.kill(pids[1], signal.SIGKILL)
    while not c._ranks.losses.has_loss:
        time.sleep(0.01)
    return late(calls)

c.allreduce(x, algorithm="mpi")
if c.rank == 1:
    time.sleep(600)
MismatchDetector.late, watch._deadline = late_while_a_loss_is_found, 0.1
try:
    c.allreduce(x, algorithm="mpi")
except RankLost as error:
    print(f"rank {c.rank}: {error.ranks}", flush=True)
watch._thread.join()
left = c.shrink()
left.barrier()
"""


@pytest.mark.mpi_job
def test_a_loss_that_is_found_when_the_time_has_just_run_out_is_a_loss():
    result = job_with_losses(3, "-c", FOUND_WHILE_TIME_RUNS_OUT, timeout=120)
    assert sorted(result.stdout.splitlines()) == ["rank 0: (1,)", "rank 2: (1,)"], result.stderr[-3000:]
    assert "Traceback" not in result.stderr
    assert "has waited" not in result.stderr


@pytest.mark.mpi_job
def test_without_fault_tolerance_a_communicator_does_not_shrink():
    body = ("from scaffe.collectives import CommError, Communicator\nc = Communicator.world()\n"
            "try: c.shrink()\nexcept CommError as error: print(error)")
    result = job(2, ["-c", body], timeout=120)
    assert result.stdout.count("a communicator cannot shrink: the job was started without fault tolerance, which "
                               "mpirun --with-ft ulfm (Open MPI 5) has") == 2, result.stderr


def test_one_rank_has_none_to_lose():
    with pytest.raises(CommError, match="one rank by itself has none to lose"):
        Communicator.single().shrink()


@pytest.mark.parametrize(("ranks", "line"), [
    ((), "rank 3: another rank is lost"), ((1,), "rank 3: rank 1 is lost"), ((0, 2), "rank 3: ranks 0, 2 are lost")])
def test_the_line_names_who_is_lost(ranks, line):
    assert (str(RankLost(3, ranks)), RankLost(3, ranks).ranks) == (line, ranks)


@pytest.mark.parametrize(("value", "is_asked"), [("1", True), ("true", True), ("0", False), ("", False), (None, False)])
def test_the_launcher_says_whether_ranks_may_be_lost(value, is_asked):
    assert ulfm.is_asked_for({} if value is None else {ulfm.VARIABLE: value}) == is_asked
