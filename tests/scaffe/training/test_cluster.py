"""Training over emulated nodes (jobs/cluster.sh), and that nothing of it is left when it is told to end."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.mpirun import MPIRUN
from tests.scaffe.runs import ROOT, write_solver
from tests.scaffe.training.test_timeline import NET

CLUSTER = str(ROOT / "jobs" / "cluster.sh")


def can_make_nodes():
    """Whether this process may make network namespaces and shape their links."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        return False
    script = ("ip netns add scaffe-probe && ip -n scaffe-probe link add name port0 type veth peer name port1 && "
              "tc -n scaffe-probe qdisc add dev port0 root tbf rate 1gbit burst 128kb limit 2mb")
    made = subprocess.run(["bash", "-c", script], capture_output=True).returncode == 0
    subprocess.run(["ip", "netns", "del", "scaffe-probe"], capture_output=True)
    return made


pytestmark = [pytest.mark.mpi_job,
              pytest.mark.skipif(not can_make_nodes(), reason="needs root, iproute2 and the kernel's veth and tbf")]


def on_nodes(n_nodes, *arguments):
    return [CLUSTER, str(n_nodes), "1gbit", "--", sys.executable, *arguments]


def environment():
    return os.environ | {"MPIRUN": MPIRUN, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("strategy", ["sc-rs", "sc-obr"])
def test_nodes_train_and_end(tmp_path, strategy):
    solver = write_solver(tmp_path, NET, max_iter=30, test_iter=None, test_interval=None)
    done = subprocess.run(on_nodes(3, "-m", "scaffe", "train", "-solver", str(solver), "-strategy", strategy,
                                   "-bucket", "0", "-threads", "1"),
                          cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Optimization Done." in done.stderr
    assert re.search(r"30 iterations in .* on 3 rank\(s\)", done.stderr)


def test_nothing_is_left_of_a_cluster_that_is_told_to_end(tmp_path):
    word = f"left_{os.getpid()}"
    body = (f"import numpy as np\nfrom scaffe.collectives import Communicator\nc, {word} = Communicator.world(), 1\n"
            "x = np.zeros(1 << 20, np.float32)\nc.reduce(x)\nif c.rank == 0: open('begun', 'w').close()\n"
            "while True: c.ireduce_scatter(x, algorithm='R').wait()")
    job = subprocess.Popen(on_nodes(3, "-c", body), cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, start_new_session=True)
    wait_until(Path(tmp_path, "begun").exists, 60)
    os.killpg(job.pid, signal.SIGTERM)
    job.wait(timeout=60)
    wait_until(lambda: not processes_with(word), 30)


def wait_until(holds, seconds):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def processes_with(word):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes():
                found.append(path)
        except OSError:
            continue
    return found
