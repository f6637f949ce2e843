"""Device buffers on several ranks: the tests in device/ under a launcher, the commands, and ranks that do not come."""

import json
import os
import re
import subprocess
import sys

import pytest

from scaffe.cli.main import main as scaffe
from scaffe.collectives.tuning.table import TuningTable
from tests import pretend
from tests.collectives.fault_tolerance.test_losses import job_with_losses
from tests.collectives.test_mpi import HERE, job


@pytest.fixture
def cp(monkeypatch):
    return pretend.install(monkeypatch)


@pytest.mark.parametrize(("n_ranks", "ranks_per_node", "file"),
                         [(3, 0, ""), *(pytest.param(*case, marks=pytest.mark.thorough) for case in (
                             (1, 0, ""), (2, 0, ""), (4, 0, "test_collectives.py"), (5, 2, "")))])
@pytest.mark.mpi_job
@pretend.needs_compiler
def test_device_buffers_on(n_ranks, ranks_per_node, file):
    result = job(n_ranks, ["-m", "pytest", "--with-mpi", "-x", "-q", "--color=no", str(HERE / "device" / file)],
                 SCAFFE_RANKS_PER_NODE=str(ranks_per_node or ""))
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]

AS_CUPY = str(HERE.parent / "pretend" / "path")


def command(n_ranks, *arguments, **environment):
    return job(n_ranks, arguments, PYTHONPATH=f"{HERE.parents[1]}:{AS_CUPY}", **environment)


@pytest.mark.mpi_job
@pretend.needs_compiler
def test_bench_prints_a_row_for_each_length_of_device_buffers(tmp_path):
    rows = tmp_path / "rows.json"
    result = command(2, "-m", "scaffe", "bench", "reduce", "-memory", "device", "-m", "4:4096", "-s", "32", "-a",
                     "mpi,M,C@256,auto", "-i", "2", "-x", "1", "-c", "--json", str(rows))
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines() if line[:1].isdigit()]
    assert [(int(line[0]), len(line), line[-1]) for line in lines] == [(n, 6, "Pass") for n in (4, 128, 4096)]
    found = json.loads(rows.read_text())
    assert ("by CUDA IPC (2 ranks on 1 GPU; streams follow one another's events); messages through pinned host memory"
            in found["transport"])
    assert len(found["rows"]) == 12


@pytest.mark.mpi_job
@pretend.needs_compiler
@pytest.mark.parametrize("case", ["clock", "update"])
def test_bench_measures_servers_with_device_buffers(case):
    result = command(2, "-m", "scaffe", "bench", case, "-memory", "device", "-m", "4:4096", "-s", "32", "-a", "auto",
                     "-slack", "0,1", "-i", "2", "-x", "1", "-c")
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines() if line[:1].isdigit()]
    assert [(int(line[0]), len(line), line[-1]) for line in lines] == [(n, 5, "Pass") for n in (4, 128, 4096)]


PRELUDE = """
import os, signal, sys, time
from scaffe.collectives import Communicator
c = Communicator.world()
c.install_excepthook()
x = c.alloc(1000, memory="device")
c.allreduce(x), c.iallreduce(x).wait()
assert "by CUDA IPC" in c.describe_device()
for _, group, _ in c._ranks._engines:
    group._deadline = 2  # now that all is set up, however slow the machine
"""


@pytest.mark.mpi_job
@pretend.needs_compiler
def test_a_rank_that_does_not_come_to_the_set_up_ends_the_job():
    body = ("import time\nfrom scaffe.collectives import Communicator\nfrom scaffe.collectives.cuda import setup\n"
            "c = Communicator.world(deadline=3)\nc.install_excepthook()\n"
            "if c.rank == 1: setup.links_of = lambda *arguments: time.sleep(600)\nc.alloc(1000, memory='device')")
    result = command(2, "-c", body, timeout=120)
    assert result.returncode != 0
    assert re.search(r"^rank 0: set-up of device memory has waited 3 s for ", result.stderr, re.M), result.stderr


@pytest.mark.parametrize(("body", "line"), [
    ("if c.rank == 1: time.sleep(600)\nc.iallreduce(x).wait()", r"rank 0:? .*waited \d+ s for rank 1"),
    ("if c.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\nc.allreduce(x)\ntime.sleep(600)", ""),
])
@pytest.mark.mpi_job
@pretend.needs_compiler
def test_a_rank_that_does_not_come_ends_the_job(body, line):
    result = command(2, "-c", PRELUDE + body, timeout=120)
    assert result.returncode != 0
    assert "Traceback" not in result.stderr
    assert not line or len([text for text in result.stderr.splitlines() if re.match(line, text)]) == 1


LOST_WHILE_ITS_DEVICE_IS_LATE = """
import os, signal
import cupy
from scaffe.collectives import Communicator, RankLost
from scaffe.collectives.shared.node import NodeGroup
from tests import pretend
c, meet = Communicator.world(), NodeGroup.meet
x = c.alloc(1000, memory="device")
x[...] = 1
c.allreduce(x, algorithm="M")

def meet_and_die(self, call):
    meet(self, call)
    os.kill(os.getpid(), signal.SIGKILL)

pretend.settings.deferred = True  # what a dead rank's device has not done by now it never does
if c.rank == 1:
    NodeGroup.meet = meet_and_die
try:
    while True:
        c.allreduce(x, algorithm="M")
        c.wait_for_device()
except RankLost as loss:
    print(c.rank, loss.ranks, flush=True)
left = c.shrink()
y = left.alloc(1000, memory="device")
y[...] = 1
left.allreduce(y, algorithm="M")
cupy.cuda.Device().synchronize()
print(c.rank, y.get().sum(), flush=True)
"""


@pytest.mark.mpi_job
@pretend.needs_compiler
def test_no_device_waits_for_a_lost_rank():
    result = job_with_losses(3, "-c", LOST_WHILE_ITS_DEVICE_IS_LATE, timeout=120,
                             PYTHONPATH=f"{HERE.parents[1]}:{AS_CUPY}")
    assert sorted(result.stdout.splitlines()) == ["0 (1,)", "0 2000.0", "2 (1,)", "2 2000.0"], result.stderr[-3000:]


LATE_OR_BROKEN = """
import time
import cupy
from scaffe.collectives import Communicator
from scaffe.collectives.cuda import device
c = Communicator.world(deadline=0.3)
c.install_excepthook()
x = c.alloc(1000, memory="device")
x[...] = 1
c.allreduce(x, algorithm="M")
cupy.cuda.Device().synchronize()
"""
LATE = """
if c.rank == 1:  # its device has work for far more than the deadline
    end = time.monotonic() + 2
    cupy.cuda.get_current_stream().add_gated(lambda: None, lambda: time.monotonic() > end)
c.allreduce(x, algorithm="M")
c.wait_for_device()
print(x.get().sum(), flush=True)
"""
BROKEN = """
if c.rank == 1:
    cupy.cuda.runtime.eventQuery = lambda event: 700  # as after a kernel's access to an illegal address
c.allreduce(x, algorithm="M")
time.sleep(600)
"""


@pytest.mark.mpi_job
@pretend.needs_compiler
def test_a_rank_whose_device_is_late_is_not_lost():
    result = job_with_losses(3, "-c", LATE_OR_BROKEN + LATE, timeout=120, PYTHONPATH=f"{HERE.parents[1]}:{AS_CUPY}")
    assert result.stdout.splitlines() == ["9000.0"] * 3, result.stderr[-3000:]


@pytest.mark.mpi_job
@pretend.needs_compiler
def test_a_device_that_has_failed_is_named_before_others_use_what_it_should_have_written():
    result = job_with_losses(3, "-c", LATE_OR_BROKEN + BROKEN, timeout=120, PYTHONPATH=f"{HERE.parents[1]}:{AS_CUPY}")
    assert result.returncode != 0
    assert "rank 1: work on the device has failed: CUDA error 700" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("arguments", [["bench", "bcast", "-memory", "device"], ["tune", "-memory", "device"]])
def test_commands_without_a_gpu_say_so_in_one_line(monkeypatch, capsys, arguments):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert scaffe(arguments) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pretend.needs_compiler
def test_tune_measures_device_memory(cp, tmp_path, capsys):
    table = tmp_path / "table.json"
    assert scaffe(["tune", "-o", str(table), "-memory", "device", "-c", "reduce", "-m", "4:64", "-i", "1", "-x", "0",
                   "-a", "mpi,C"]) == 0
    found = TuningTable.read(table).entries
    assert [entry.key.memory for entry in found] == ["device"]
    chosen = {(choice.algorithm, choice.chunk_bytes) for choice in found[0].choices}
    assert chosen == {("C", 262144)}  # of the chunks for this memory the least


@pytest.mark.thorough
@pytest.mark.mpi_job
@pretend.needs_compiler
def test_the_gpu_benchmark_runs(tmp_path):
    file = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "benchmarks/gpu_collectives.py", "--json", str(file), "--ranks", "2", "-m", "4096:8192",
         "--copy-bytes", "65536", "--ways", "kernel,ipc,aware,nccl"],
        cwd=HERE.parents[1], capture_output=True, text=True, timeout=150, check=False,
        env=os.environ | {"PYTHONPATH": f"{HERE.parents[1]}:{AS_CUPY}"})
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text())
    assert [(row["way"], row["bytes"]) for row in figures["rows"]] == [
        ("kernel", 4096), ("kernel", 8192), ("ipc", 4096), ("ipc", 8192)]
    assert "by CUDA IPC (2 ranks on 1 GPU" in figures["transport"]["2 ipc"]
    assert "the MPI does not take device memory" in done.stdout
    assert "NCCL cannot be loaded" in figures["missing"]["2 nccl"]
