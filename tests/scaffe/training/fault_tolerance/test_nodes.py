"""Ranks of other nodes are found lost: of emulated nodes (jobs/cluster.sh) one dies, another is cut off.

docs/reliability.md says after how many seconds: 2 and 31; with impatient.py the latter are 16.
"""

import os
import signal
import subprocess
import sys

import pytest

from tests.mpirun import MPIRUN
from tests.scaffe.runs import ROOT
from tests.scaffe.training.test_cluster import CLUSTER, can_make_nodes, wait_until
from tests.soak.doomed_run import GO_ON, DoomedRun
from tests.soak.losses import make_home

pytestmark = [pytest.mark.mpi_job, pytest.mark.thorough,
              pytest.mark.skipif(not can_make_nodes(), reason="needs root, iproute2 and the kernel's veth and tbf")]


@pytest.fixture
def run(tmp_path):
    """Ranks on three nodes, in the middle of their training; what is left of them ends with the test."""
    run = DoomedRun(make_home(tmp_path), "sc-rs", [CLUSTER, "3", "1gbit", "--with-ft", "ulfm", "--"], 1,
                    module="tests.scaffe.training.fault_tolerance.impatient", MPIRUN=MPIRUN, SCAFFE_DEADLINE="1")
    yield run
    for node in range(3):
        space = f"c{run.process.pid}n{node}"
        for pid in subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True).stdout.split():
            os.kill(int(pid), signal.SIGKILL)
    run.process.wait(60)


def test_a_dead_node_is_lost_and_one_that_is_cut_off_ends_the_job_on_both_sides(run):
    """Nobody can tell a node that is cut off from one that is late: no side goes on, so that never two of them do."""
    assert run.wait_for(r"Iteration 5 \(", 100), run.text()
    os.kill(run.alive()[2], signal.SIGKILL)
    assert run.wait_for(GO_ON, 100), run.text()
    subprocess.run(["ip", "-n", f"c{run.process.pid}s", "link", "set", "port1", "down"], check=True)
    wait_until(lambda: not run.alive(), 100)
    assert len(run.times_of(GO_ON)) == 1
    assert "Optimization Done" not in run.text()


def test_a_rank_alone_on_its_node_that_dies_while_mpi_starts_ends_the_job_on_all(tmp_path):
    """The launcher says so, but may give exit code 0: what ends is its daemon of that node."""
    body = ("import os, signal, time\nfrom scaffe import start_watch\nfrom scaffe.collectives import Communicator\n"
            "if os.environ['OMPI_COMM_WORLD_RANK'] == '1':\n    start_watch.begin()\n"
            "    while len(os.listdir()) < 2: time.sleep(0.01)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
            "open(os.environ['OMPI_COMM_WORLD_RANK'], 'w').close()\nCommunicator.world()\nprint('came through')\n")
    done = subprocess.run([CLUSTER, "3", "1gbit", "--with-ft", "ulfm", "--", sys.executable, "-c", body], cwd=tmp_path,
                          env=os.environ | {"MPIRUN": MPIRUN, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
                          timeout=100)
    assert "terminate the job" in done.stderr
    assert "came through" not in done.stdout
