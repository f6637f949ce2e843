"""L-BFGS in limited memory: activations leave, and the bits are the same."""

import os
import re
import subprocess
import sys

import pytest

from tests.mpirun import mpirun
from tests.scaffe.runs import ROOT

NET = """name: "n"
layer { name: "d" type: "Data" top: "data" top: "label" data_param { source: "SOURCE" batch_size: 70 backend: LMDB }
  transform_param { scale: 0.00390625 } }
""" + "".join(f"""layer {{ name: "c{i}" type: "Convolution" bottom: "{below}" top: "c{i}"
  convolution_param {{ num_output: 6 kernel_size: 5 pad: 2 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "s{i}" type: "Sigmoid" bottom: "c{i}" top: "s{i}" }}
""" for i, below in enumerate(("data", "s0", "s1", "s2"))) + """
layer { name: "ip" type: "InnerProduct" bottom: "s3" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """net: "net.prototxt" type: "LBFGS" base_lr: 1 lr_policy: "fixed" max_iter: 4 display: 1 random_seed: 5
snapshot_prefix: "run" lbfgs_param { history: 2 } """


@pytest.fixture
def train(tmp_path, databases):
    """Trains within a limit, if there is one, on 300 images, 4 batches and a part; the weights, and what was said."""
    (tmp_path / "net.prototxt").write_text(NET.replace("SOURCE", str(databases / "test")))
    (tmp_path / "solver.prototxt").write_text(SOLVER)

    def run(*flags, n_ranks=1):
        command = [*(mpirun(n_ranks) if n_ranks > 1 else []), sys.executable, "-m", "scaffe", "train", "-solver",
                   "solver.prototxt", "-strategy", "sandblaster", "-threads", "1", *flags]
        done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True,
                              text=True, timeout=600, check=False)
        found = tmp_path / "run_iter_4.caffemodel"
        weights = found.read_bytes() if done.returncode == 0 else b""
        found.unlink(missing_ok=True)
        return weights, done.stderr

    return run


def least_of(text):
    """The bytes that a line asks for."""
    return re.search(r"(?:trains in|alone, which takes) ([\d,]+)", text)[1].replace(",", "")


def test_activations_leave_and_the_bits_are_the_same(train):
    """The last portion of a batch is shorter than the others: blobs may shrink meanwhile."""
    expected, said = train()
    assert expected, said
    least = least_of(train("-memory", "1KB")[1])
    for placement in ("auto", "move"):
        found, said = train("-memory", least, "-placement", placement)
        assert found == expected, said
        assert re.search(r"Memory: .* do not move; keep \d+, (move [1-9]|move 0, recompute [1-9])", said), said


@pytest.mark.thorough
@pytest.mark.mpi_job
@pytest.mark.parametrize("servers", ["0", "1"])
def test_replicas_and_servers(train, servers):
    expected, said = train("-deterministic")
    assert expected, said
    found, limit = b"", "1KB"
    while not found:  # the server alone, or a replica, needs more
        found, said = train("-deterministic", "-servers", servers, "-memory", limit, n_ranks=3)
        limit = found or least_of(said)
    assert found == expected, said
    assert "do not move; " in said
