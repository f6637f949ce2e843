"""After `scaffe warm` a first run compiles nothing, on one rank or on several."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scaffe.cli import main as cli
from scaffe.cli.commands import warm
from tests.mpirun import mpirun
from tests.scaffe.cli.first_run import MARK
from tests.scaffe.runs import ROOT, write_solver

FIRST_RUN = Path(__file__).with_name("first_run.py")
NOTING = Path(__file__).with_name("noting")
NET = """
layer { name: "in" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 8 dim: 48 dim: 16 dim: 16 } shape { dim: 8 } data_filler { type: "gaussian" std: 1 }
  data_filler { type: "constant" value: 2 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 50 kernel_size: 3
  weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 4
  weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


@pytest.mark.thorough
@pytest.mark.mpi_job
def test_a_first_run_compiles_nothing(tmp_path):
    """Each run loads nothing but what `warm` has left, whatever else this machine's cache holds."""
    def loaded(*words):
        list_ = tmp_path / "loaded"
        list_.write_text("")
        environment = os.environ | {"PYTHONPATH": f"{NOTING}:{ROOT}", "NOTED_IN": str(list_)}
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr
        return done, {*list_.read_text().splitlines()}

    done, left = loaded(sys.executable, "-m", "scaffe", "warm")
    assert done.stdout == "kernels are compiled\n"
    solver = write_solver(tmp_path, NET, test_iter=None, test_interval=None, max_iter=3)
    for launcher, flags in (([], []), ([], ["-precision", "bf16"]), (mpirun(2), ["-strategy", "sc-b"]),
                            (mpirun(2), ["-strategy", "sc-obr", "-reduce", "CB-2", "-wire", "bf16"]),
                            (mpirun(2), ["-strategy", "downpour"])):
        done, found = loaded(*launcher, sys.executable, str(FIRST_RUN), "train", "-solver", str(solver), *flags)
        assert MARK not in done.stderr, done.stderr
        assert "compiling" not in done.stderr
        assert found
        assert not found - left


@pytest.mark.parametrize("launcher, said", [
    (None, "there is no mpirun"), ("#!/bin/sh\necho no slots >&2\necho ---- >&2\nexit 1\n", "failed: no slots")])
def test_without_a_launcher_it_says_what_is_not_compiled(monkeypatch, capsys, tmp_path, launcher, said):
    monkeypatch.setattr(warm.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(warm, "_train_both", lambda folder: 0)
    if launcher:
        (tmp_path / "mpirun").write_text(launcher)
        (tmp_path / "mpirun").chmod(0o755)
    assert cli.main(["warm"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("kernels are compiled, but for several ranks: ") and out.endswith(f"{said}\n")
