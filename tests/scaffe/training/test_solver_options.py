"""Solver options that change what is logged and when: average_loss, test_initialization, test_compute_loss."""

import re

import numpy as np
import pytest

import scaffe as caffe
from scaffe.errors import UserError

NET = """layer { name: "x" type: "Input" top: "x" top: "t" input_param { shape { dim: 1 dim: 2 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "a" bottom: "t" top: "loss" }"""
TARGETS = (2.0, 4.0, 1.0, 3.0, 5.0)


@pytest.fixture
def log_of(tmp_path, capfd):
    """Trains five iterations, with a loss of target ** 2 each, and gives the log."""

    def train(options: str) -> str:
        (tmp_path / "net.prototxt").write_text(NET)
        (tmp_path / "solver.prototxt").write_text(
            f'net: "{tmp_path}/net.prototxt" base_lr: 0 lr_policy: "fixed" display: 1 max_iter: 5 random_seed: 1 '
            f"test_iter: 2 test_interval: 4 {options}")
        solver = caffe.get_solver(str(tmp_path / "solver.prototxt"))
        solver.test_nets[0].blobs["t"].data[...] = 3
        for target in TARGETS:
            solver.net.blobs["t"].data[...] = target
            solver.step(1)
        return capfd.readouterr().err

    return train


@pytest.mark.parametrize("n_averaged", [1, 3, 9])
def test_average_loss(log_of, n_averaged):
    shown = [float(v) for v in re.findall(r"Iteration \d+ .*\), loss = (\S+)", log_of(f"average_loss: {n_averaged}"))]
    losses = np.square(TARGETS)
    wanted = [losses[max(0, i + 1 - n_averaged) : i + 1].mean() for i in range(len(losses))]
    assert shown == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("option", ["average_loss", "iter_size"])
def test_what_must_be_at_least_one(log_of, option):
    with pytest.raises(UserError, match=f"{option} must be at least 1, got 0"):
        log_of(f"{option}: 0")


@pytest.mark.parametrize(("options", "iterations"), [("", [0, 4]), ("test_initialization: false", [4])])
def test_test_initialization(log_of, options, iterations):
    assert [int(i) for i in re.findall(r"Iteration (\d+), Testing net", log_of(options))] == iterations


@pytest.mark.parametrize(("options", "lines"), [("", []), ("test_compute_loss: true", ["9", "9"])])
def test_test_compute_loss(log_of, options, lines):
    assert re.findall(r"Test loss: (\S+)", log_of(options)) == lines
