"""Where one rank lacks memory, or a file, the job ends with one line that names it, and nobody waits."""

import os
import re
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


def lines_of(folder, limit, flags):
    """What a job says in whose training rank 1 lacks memory."""
    (folder / "net.prototxt").write_text(wide_net(8))
    (folder / "solver.prototxt").write_text('net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 1\n')
    done = subprocess.run([*mpirun(2), sys.executable, ROOT / "tests/scaffe/training/limited_rank.py", *limit,
                           "-solver", "solver.prototxt", *flags], cwd=folder, capture_output=True, text=True,
                          timeout=120, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith(("scaffe: ", "rank "))]


@pytest.mark.parametrize("flags", [[], ["-partitions", "2"]], ids=["whole nets", "one net"])
def test_rank_that_lacks_memory_ends_the_job_in_one_line(tmp_path, flags):
    """Rank 0 does not: in a net that it shares it has to hear of it, too."""
    (said,) = lines_of(tmp_path, ["own", str(ROOM)], flags)
    assert said.startswith("scaffe: rank 1: net.prototxt: layer 'fc")
    assert "(InnerProduct): not enough memory: " in said


def test_rank_whose_part_finds_no_memory_to_share_ends_the_job_in_one_line(tmp_path):
    """It maps the weights of its part with the ranks that have the same part: with nobody, so rank 0 does not hear."""
    (said,) = lines_of(tmp_path, ["shared", str(ROOM)], ["-partitions", "2"])
    assert re.fullmatch(r"rank 1: alloc: rank 0 has no shared memory of \d+ bytes: .*", said)
