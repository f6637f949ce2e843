"""Temporary files of snapshots: a run that goes on after a loss removes what the lost rank was writing."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from scaffe.training.observers.snapshots import Snapshots
from tests.mpirun import ROOT
from tests.test_temporary import KILLED


@pytest.mark.parametrize("when", ["at the start", "when ranks go on", "at the end"])
@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_removes_what_a_killed_rank_left(tmp_path, when, rank):
    param = SimpleNamespace(snapshot_prefix=str(tmp_path / "run"), snapshot=0, snapshot_after_train=False,
                            snapshot_format=1, HDF5=0)
    solver = SimpleNamespace(param=param, iteration=7, communicator=SimpleNamespace(rank=rank))
    observer = Snapshots()
    if when != "at the start":
        observer.begin(solver)
    subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, check=False)
    (observer.finish if when == "at the end" else observer.begin)(solver)
    assert len(list(tmp_path.iterdir())) == (rank > 0)
