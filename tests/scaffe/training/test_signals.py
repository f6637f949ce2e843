"""Signals of ranks under mpirun: Ctrl-C, a hang-up and SIGTERM have their effects through jobs/mpirun.sh."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.mpirun import MPIRUN
from tests.scaffe.runs import ROOT, write_solver

NET = """
layer { name: "d" type: "DummyData" top: "data" top: "label" dummy_data_param { shape { dim: 8 dim: 20 }
  shape { dim: 8 } data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 10 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""

pytestmark = pytest.mark.mpi_job


@pytest.mark.parametrize(("flags", "first", "second"), [
    ([], signal.SIGHUP, signal.SIGINT),
    (["-sigint_effect", "snapshot", "-sighup_effect", "none"], signal.SIGINT, signal.SIGTERM)])
def test_the_first_snapshots_and_the_second_stops(tmp_path, flags, first, second):
    write_solver(tmp_path, NET, test_iter=None, test_interval=0, max_iter=10**9, display=200)
    process = subprocess.Popen([ROOT / "jobs/mpirun.sh", "-np", "2", sys.executable, "-m", "scaffe", "train", "-solver",
                                "solver.prototxt", "-threads", "1", *flags], cwd=tmp_path, stderr=subprocess.PIPE,
                               text=True, env=os.environ | {"MPIRUN": MPIRUN}, start_new_session=True,
                               preexec_fn=_hear)
    said = []
    try:
        _read_until(process, "Iteration 200 ", said)
        process.send_signal(first)
        _read_until(process, "Snapshotting solver state", said)
        _read_until(process, "Iteration ", said)  # it goes on
        process.send_signal(second)
        _read_until(process, "Snapshotting solver state", said)
        _read_until(process, "Optimization stopped early.", said)
        assert process.wait(100) == 0
    finally:
        while process.poll() is None:
            process.send_signal(signal.SIGINT)  # the second one ends the ranks at once
            time.sleep(0.5)
        process.stderr.close()
    assert len(list(tmp_path.glob("run_iter_*.solverstate"))) == 2


def _hear():
    """A shell cannot take signals back that were ignored when it began, as under nohup or in a background job."""
    for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)


def _read_until(process, words, said):
    for line in process.stderr:
        said.append(line)
        if words in line:
            return
    raise AssertionError(f"never said {words!r}: {''.join(said[-20:])}")
