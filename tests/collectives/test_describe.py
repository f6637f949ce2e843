"""One line about the MPI that is there, without starting it."""

import subprocess
import sys

from scaffe.collectives.launch import describe_mpi


def test_one_line_without_starting_mpi():
    code = ("from scaffe.collectives.launch import describe_mpi; print(describe_mpi()); from mpi4py import MPI; "
            "print(MPI.Is_initialized())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    line, initialized = done.stdout.splitlines()
    assert line.startswith("MPI: ")
    assert "CUDA-aware" in line
    assert initialized == "False"


def test_no_mpi(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert describe_mpi().startswith("MPI: none (")
