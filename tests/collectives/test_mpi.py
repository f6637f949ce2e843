"""The tests in mpi/ under a launcher, one job a rank count; and what an MPI job does when a rank fails.

MPIRUN and MPI_PYTHON choose another MPI: `MPIRUN=.venv-mpich/bin/mpirun MPI_PYTHON=.venv-mpich/bin/python pytest ...`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mpirun import mpirun

HERE = Path(__file__).parent
PYTHON = os.environ.get("MPI_PYTHON", sys.executable)
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_osc": "^ucx",
               "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_mpi_yield_when_idle": "1",
               "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE.parents[1]), os.environ.get("PYTHONPATH")]))}

pytestmark = pytest.mark.mpi_job


def job(n_ranks, arguments, timeout=300, **environment):
    """Run python with `arguments` on n_ranks ranks. A job that hangs is a subprocess.TimeoutExpired."""
    return subprocess.run([*mpirun(n_ranks), PYTHON, *arguments], capture_output=True, text=True,
                          timeout=timeout, env=os.environ | ENVIRONMENT | environment, errors="replace", check=False)


FILES = {"all": ("",), "plans": ("test_collectives.py", "test_nodes.py", "test_wire.py")}
"""Plans depend on the number of ranks; five on two nodes try all the rest, too."""


@pytest.mark.parametrize(("n_ranks", "ranks_per_node", "which"), [
    (5, 2, "all"), *(pytest.param(*case, marks=pytest.mark.thorough) for case in (
        (1, 0, "all"), (2, 0, "all"), (3, 0, "all"), (4, 0, "all"), (5, 0, "plans"), (8, 0, "all")))])
def test_collectives_on(n_ranks, ranks_per_node, which):
    files = [str(HERE / "mpi" / file) for file in FILES[which]]
    result = job(n_ranks, ["-m", "pytest", "--with-mpi", "-x", "-q", "--color=no", *files],
                 SCAFFE_RANKS_PER_NODE=str(ranks_per_node or ""))
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]


PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
from scaffe.collectives import Communicator
c = Communicator.world()
c.install_excepthook()
x = c.alloc(1000)
c.allreduce(x, algorithm="M"), c.allreduce(x, algorithm="C")
"""


@pytest.mark.parametrize("body", [
    "if c.rank == 1: raise RuntimeError('lost my way\\nsecond line')",
    "if c.rank == 1: threading.Thread(target=lambda: 1 / 0).start()",
])
def test_an_uncaught_exception_ends_the_job_with_its_traceback_and_one_line(body):
    rest = "c.reduce(x, algorithm='M')\nif c.rank == 1: time.sleep(600)\nc.barrier()"
    result = job(3, ["-c", f"{PRELUDE}{body}\n{rest}"], timeout=120)
    assert result.returncode != 0
    lines = [line for line in result.stderr.splitlines() if line.startswith("rank 1: ")]
    assert len(lines) == 1
    assert "lost my way" in lines[0] or "ZeroDivisionError" in lines[0]
    assert result.stderr.count("Traceback") == 1  # no ExpectedError: a defect


@pytest.mark.parametrize("multiple", ["", pytest.param("funneled", marks=pytest.mark.thorough)])
def test_a_forked_child_that_ends_by_itself_ends_nothing_else(multiple):
    """However it ends, with its own status: it neither finalizes MPI nor aborts the job, and the ranks go on."""
    body = """
def end(how):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        how()
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def fails():
    c.barrier()

found = [end(how) for how in (lambda: None, lambda: sys.exit(3), lambda: os._exit(4), lambda: 1 / 0, fails,
                              lambda: c.abort(5), lambda: os.kill(os.getpid(), 9))]
n = np.ones(10)
c.allreduce(n)
c.iallreduce(n).wait()
print(c.rank, found, n[0], flush=True)
"""
    prelude = PRELUDE.replace("world()", f"world({multiple!r})") if multiple else PRELUDE
    result = job(2, ["-c", prelude + body], timeout=200)
    expected = [f"{rank} [0, 3, 4, 1, 1, 5, -9] 4.0" for rank in range(2)]
    assert sorted(result.stdout.splitlines()) == expected, result.stderr
    assert result.returncode == 0, result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("ZeroDivisionError")]) == 2


@pytest.mark.parametrize(("form", "algorithm"), [("i", "M"), ("", "C"), ("i", "mpi"), *(
    pytest.param(*case, marks=pytest.mark.thorough) for case in (("", "M"), ("i", "C"), ("", "mpi")))])
def test_a_silent_peer_is_named_within_the_deadline(algorithm, form):
    body = f"""
for engine, group, _ in c._ranks._engines:  # now that all is set up, however slow the machine
    engine.watch._deadline = group._deadline = c.deadline / 30
if c.rank == 1: time.sleep(600)
r = c.{form}allreduce(x, algorithm={algorithm!r})
if r: r.wait()
"""
    result = job(2, ["-c", PRELUDE + body], SCAFFE_DEADLINE="60", timeout=120)
    assert result.returncode != 0
    lines = [line for line in result.stderr.splitlines() if line.startswith("rank 0")]
    assert len(lines) == 1
    assert "for rank 1" in lines[0]


@pytest.mark.parametrize(("one", "other"), [
    ("c.reduce(x[:100], algorithm='C')", "c.reduce(x[:150], algorithm='C')"),
    ("c.bcast(x, root=0, algorithm='B')", "c.bcast(x, root=1, algorithm='B')"),
    ("c.ireduce(x, algorithm='M').wait()", "c.iallreduce(x, algorithm='C').wait()"),
    ("c.allreduce(x, algorithm='mpi')", "c.bcast(x[:7], algorithm='mpi')"),
])
def test_calls_that_differ_though_all_are_known_end_the_job(one, other):
    """After ranks have made both calls together, one makes the other call; the deadline is far away."""
    body = f"""
for _ in range(2):
    {one}; {other}
if c.rank == 2: {other}
else: {one}
c.barrier()
"""
    result = job(3, ["-c", PRELUDE + body], timeout=120)
    assert result.returncode != 0
    lines = [line for line in result.stderr.splitlines() if line.startswith("ranks disagree: ")]
    assert len(lines) == 1
    assert re.match(r"ranks disagree: rank 0 has \w+ of \d+ x .*, rank 2 has \w+ of \d+ x ", lines[0])


@pytest.mark.parametrize(("one", "other", "said"), [
    ("c.barrier()", "c.bcast_object(1)", ("barrier", "bcast of objects (root 0)")),
    *(pytest.param(*case, marks=pytest.mark.thorough) for case in (
        ("c.gather_objects(1, 2)", "c.reduce(x, algorithm='C')", ("gather of objects (root 2)", "reduce of 1000 x ")),
        ("c.allreduce(x, algorithm='mpi')", "c.barrier()", ("allreduce of 1000 x float32 ", "barrier"))))])
def test_calls_that_differ_in_kind_end_the_job(one, other, said):
    """Objects, arrays, barriers: each waits on a communicator of its own; the deadline is far away."""
    result = job(3, ["-c", f"{PRELUDE}if c.rank == 2: {other}\nelse: {one}\nc.barrier()"], timeout=120)
    assert result.returncode != 0
    lines = [line for line in result.stderr.splitlines() if line.startswith("ranks disagree: ")]
    assert len(lines) == 1 and "Traceback" not in result.stderr
    assert re.match(f"ranks disagree: rank 0 has {re.escape(said[0])}.*, rank 2 has {re.escape(said[1])}", lines[0])


def test_a_read_only_array_in_a_known_call_ends_the_job():
    body = """
c.reduce(x, algorithm='C')
if c.rank == 2: x.flags.writeable = False
c.reduce(x, algorithm='C')
c.barrier()
"""
    result = job(3, ["-c", PRELUDE + body])
    assert result.returncode != 0
    lines = [line for line in result.stderr.splitlines() if line.startswith("ranks disagree: ")]
    assert len(lines) == 1
    assert "rank 2 has reduce that cannot be: the collective writes into its array, which is read-only" in lines[0]


def test_a_killed_rank_ends_the_job():
    body = "if c.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\nc.allreduce(x, algorithm='M')\nc.barrier()"
    result = job(2, ["-c", PRELUDE + body], timeout=120)
    assert result.returncode != 0


def test_an_error_of_all_ranks_is_said_once():
    result = job(3, ["-c", f"{PRELUDE}c.agree(c.rank, 'the seed')"])
    assert result.returncode != 0
    assert result.stderr.count("the seed differs: rank 0 has 0, rank 1 has 1") == 1


@pytest.mark.parametrize(("words", "said"), [
    (("-a", "NOSUCH"), "no algorithm is called 'NOSUCH'"), (("-a", "C@x"), "-a C@x: the chunk after @, in bytes"),
    (("-m", "8:4"), "-m 8:4: the largest message is smaller")])
def test_a_flag_of_a_benchmark_that_cannot_be_is_said_once(words, said):
    result = job(2, ["-m", "scaffe", "bench", "reduce", *words])
    assert result.returncode == 1
    assert result.stderr.count(said) == 1


def test_below_multiple_requests_run_when_called():
    body = """
from scaffe.collectives import Communicator
import numpy as np
c = Communicator.world("serialized")
x = np.full(5, c.rank, np.float32)
assert c.ireduce(x, algorithm="C").test()
assert c.rank or (x == 1).all()
"""
    result = job(2, ["-c", body])
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("MPI_THREAD_MULTIPLE") == 1


def test_benchmarks_verify_and_print_a_row_for_each_length():
    """All cases by one job."""
    cases = ("reduce", "allreduce", "bcast", "reduce_scatter", "allgather", "latency")
    body = f"""
from scaffe.cli.main import main
from scaffe.collectives import Communicator
for case in {cases}:
    if Communicator.world().rank == 0: print("case", case, flush=True)
    assert main(["bench", case, "-m", "4:32", "-a", "mpi,M,auto", "-i", "2", "-x", "1", "-c"]) == 0
"""
    result = job(2, ["-c", body])
    assert result.returncode == 0, result.stderr
    said = result.stdout.split("case ")
    for case in cases:
        rows = [line.split() for text in said if text.startswith(f"{case}\n") for line in text.splitlines()
                if line[:1].isdigit()]
        assert [int(row[0]) for row in rows] == [4, 8, 16, 32]
        n_columns = 1 if case == "latency" else 3
        assert all(len(row) == 1 + n_columns + (case != "latency") and float(row[1]) > 0 for row in rows)


@pytest.mark.parametrize(("case", "more"), [("clock", ["-slack", "0,2,inf"]), ("read", ["-slack", "1", "-scattered"]),
                                            ("update", ["-servers", "1", "-T", "float64"])])
def test_a_servers_cases_verify_and_print_its_columns_beside_a_collectives(case, more):
    result = job(2, ["-m", "scaffe", "bench", case, "-m", "1000:8000", "-s", "8", "-a", "auto", "-i", "2", "-x", "1",
                     "-c", *more])
    assert result.returncode == 0, result.stderr[-2000:]
    heading, *rows = [line.split() for line in result.stdout.splitlines() if not line.startswith("# scaffe")]
    assert heading[-1] == "auto"
    n_columns = len(more[1].split(",")) + 1 if more[0] == "-slack" else 2
    assert [(row[0], len(row), row[-1]) for row in rows] == [(n, n_columns + 2, "Pass") for n in ("1000", "8000")]
    assert all(float(time) > 0 for row in rows for time in row[1:-1])


def test_tune_writes_a_table_that_auto_reads(tmp_path):
    table = tmp_path / "table.json"
    quick = ["-m", "4:64", "-i", "1", "-x", "0", "-a", "mpi,C", "-c", "reduce", "-memory", "host"]
    result = job(2, ["-m", "scaffe", "tune", "-o", str(table), *quick])
    assert result.returncode == 0, result.stderr
    body = "from scaffe.collectives import Communicator; import numpy as np; Communicator.world().reduce(np.ones(9))"
    assert job(2, ["-c", body], SCAFFE_TABLE=str(table)).returncode == 0
