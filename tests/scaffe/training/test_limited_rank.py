"""Where one rank lacks memory, or a file, the job ends with one line that names it, and nobody waits."""

import os
import subprocess
import sys

import pytest

from tests.mpirun import mpirun
from tests.scaffe.runs import ROOT

WIDTH, ROOM = 4096, 150 << 20
"""Weights of one layer are 64 MiB, and half of that on each of two ranks that share it; rank 1 has room for some."""
pytestmark = pytest.mark.mpi_job


def wide_net(n_layers):
    """Products whose outputs all ranks need, so that ranks exchange something between any two of them."""
    layers = ['layer { name: "data" type: "DummyData" top: "h0" top: "label" dummy_data_param { '
              f'shape {{ dim: 4 dim: {WIDTH} }} shape {{ dim: 4 }} }} }}']
    layers += [f'layer {{ name: "fc{n}" type: "InnerProduct" bottom: "h{n - 1}" top: "h{n}" inner_product_param {{ '
               f'num_output: {WIDTH} }} parallel_param {{ split: OUTPUTS }} }}' for n in range(1, n_layers + 1)]
    layers.append(f'layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "h{n_layers}" bottom: "label" top: "loss" }}')
    return "\n".join(layers)


@pytest.mark.parametrize("flags", [[], ["-partitions", "2"]], ids=["whole nets", "one net"])
def test_rank_that_lacks_memory_ends_the_job_in_one_line(tmp_path, flags):
    """Rank 0 does not: in a net that it shares it has to hear of it, too."""
    (tmp_path / "net.prototxt").write_text(wide_net(8))
    (tmp_path / "solver.prototxt").write_text('net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 1\n')
    done = subprocess.run([*mpirun(2), sys.executable, ROOT / "tests/scaffe/training/limited_rank.py", str(ROOM),
                           "-solver", "solver.prototxt", *flags], cwd=tmp_path, capture_output=True, text=True,
                          timeout=120, env=os.environ | {"PYTHONPATH": str(ROOT)})
    said = [line for line in done.stderr.splitlines() if line.startswith("scaffe: ") or "Error" in line]
    assert done.returncode == 1 and len(said) == 1, done.stderr
    assert said[0].startswith("scaffe: rank 1: net.prototxt: layer 'fc")
    assert "(InnerProduct): not enough memory: " in said[0]
