"""Only tests marked ``mpi_job`` start MPI jobs: others run beside any number of tests. What benchmarks start."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.mpirun import ROOT, mpirun


def test_an_unmarked_test_starts_no_job():
    with pytest.raises(RuntimeError, match=r"test_an_unmarked_test.* starts an MPI job: expected pytest.mark.mpi_job"):
        mpirun(2)


@pytest.mark.mpi_job
def test_a_marked_test_does():
    assert mpirun(3)[-2:] == ["-np", "3"]


STARTED = """
import os, runpy, subprocess, sys
runpy.run_path(sys.argv[1], run_name="imported")
print(os.environ["PYTHONPATH"].split(os.pathsep)[0])
child = [sys.executable, "-c", "import os, scaffe; print(os.path.dirname(scaffe.__path__[0]))"]
print(subprocess.check_output(child, text=True))
"""


def test_children_of_benchmarks_find_this_scaffe_from_any_folder(tmp_path):
    """Where it is not installed, too: these start `python -m scaffe` in folders of their own."""
    scripts = [path for path in (ROOT / "benchmarks").glob("*.py") if '"-m", "scaffe"' in path.read_text()]
    assert {"memory.py", "threads.py", "server.py", "rank_loss.py"} <= {path.name for path in scripts}
    variables = os.environ | {"PYTHONPATH": str(ROOT / "benchmarks")}  # a script's own folder
    for script in scripts:
        done = subprocess.run([sys.executable, "-c", STARTED, script], cwd=tmp_path, env=variables,
                              capture_output=True, text=True, timeout=120)
        assert done.stdout.split() == [str(ROOT)] * 2, (script, done.stderr)
