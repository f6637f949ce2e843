"""PyTorch on our collectives, in an environment that has PyTorch: `make test-torch` makes it (TORCH_PYTHON says which).

The tests in ranks/ run under a launcher, one job a rank count.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.mpirun import ROOT, mpirun

HERE = Path(__file__).parent
PYTHON = os.environ.get("TORCH_PYTHON", "")

pytestmark = [pytest.mark.mpi_job, pytest.mark.skipif(not PYTHON, reason="make test-torch runs these")]


def job(n_ranks, arguments, timeout=300, **environment):
    """Run PyTorch's Python with `arguments` on n_ranks ranks. A job that hangs is a subprocess.TimeoutExpired."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run([*mpirun(n_ranks), PYTHON, *arguments], capture_output=True, text=True, timeout=timeout,
                          env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | environment, check=False)


@pytest.mark.parametrize(("n_ranks", "ranks_per_node"), [(1, 0), (3, 0), (4, 2)])
def test_calls_and_training_on(n_ranks, ranks_per_node):
    result = job(n_ranks, ["-m", "pytest", "-x", "-q", "--color=no", str(HERE / "ranks")],
                 SCAFFE_RANKS_PER_NODE=str(ranks_per_node or ""))
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]


BEGIN = "import torch, torch.distributed as dist, scaffe.torch; dist.init_process_group('scaffe')\n"


def test_an_uncaught_exception_ends_the_job_with_one_line():
    result = job(2, ["-c", f"{BEGIN}if dist.get_rank() == 1: raise RuntimeError('lost my way')\ndist.barrier()"], 60)
    assert result.returncode != 0
    lines = [line for line in result.stderr.splitlines() if line.startswith("rank 1: RuntimeError: lost my way")]
    assert len(lines) == 1


def test_ranks_that_no_launcher_started_are_told_what_to_do(tmp_path):
    there = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    program = BEGIN.replace("'scaffe'", "'scaffe', store=dist.HashStore(), rank=0, world_size=2")
    result = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path,
                            env=os.environ | there | {"PYTHONPATH": str(ROOT)}, check=False)
    assert result.returncode == 1
    assert "a group of 2 ranks as torch.distributed has it, but 1 as MPI has it: start the ranks with mpirun" in (
        result.stderr)


def test_the_example_learns():
    result = job(2, [str(ROOT / "examples/torch_ddp.py"), "--epochs", "2"], 120)
    assert result.returncode == 0, result.stderr[-3000:]
    losses = [float(line.split()[-1]) for line in result.stdout.splitlines() if line.startswith("epoch")]
    assert len(losses) == 2  # one rank prints
    assert losses[1] < losses[0] < 2.3  # ln 10: guessing
