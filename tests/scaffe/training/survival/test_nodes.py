"""How soon ranks of other nodes are found lost: emulated nodes (jobs/cluster.sh), of which one dies or is cut off."""

import os
import signal
import subprocess
import time

import pytest

from tests.mpirun import MPIRUN
from tests.scaffe.training.test_cluster import CLUSTER, can_make_nodes, wait_until
from tests.soak.doomed_run import GO_ON, DoomedRun
from tests.soak.losses import make_home

pytestmark = [pytest.mark.mpi_job,
              pytest.mark.skipif(not can_make_nodes(), reason="needs root, iproute2 and the kernel's veth and tbf")]
KILLED_SECONDS, CUT_OFF_SECONDS = 5, 45  # docs/reliability.md: 2 and 31; two cores that others use take their time


def run_on_two_nodes(home, **variables):
    """Four ranks on two nodes, in the middle of their training."""
    run = DoomedRun(make_home(home), "sc-rs", [CLUSTER, "2", "1gbit", "--with-ft", "ulfm", "--"], 1, RANKS="2",
                    MPIRUN=MPIRUN, **variables)
    assert run.wait_for(r"Iteration 5 \(", 100), run.text()
    return run


def test_a_node_whose_ranks_die_is_found_lost(tmp_path):
    run = run_on_two_nodes(tmp_path)
    for pid in run.alive()[2:]:
        os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    assert run.wait_for(GO_ON, 100), run.text()
    assert run.times_of(GO_ON)[0] - killed < KILLED_SECONDS
    assert run.ended() == ""
    assert "2 go on" in run.text()


def test_a_node_that_is_cut_off_ends_the_job_on_both_sides(tmp_path):
    """Nobody can tell it from one that is late: no side goes on alone, so that there are never two that do."""
    run = run_on_two_nodes(tmp_path, SCAFFE_DEADLINE="1")
    subprocess.run(["ip", "-n", f"c{run.process.pid}s", "link", "set", "port1", "down"], check=True)
    cut = time.monotonic()
    wait_until(lambda: not run.alive(), 100)
    assert time.monotonic() - cut < CUT_OFF_SECONDS
    assert not run.times_of(GO_ON)
