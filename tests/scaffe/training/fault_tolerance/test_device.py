"""Ranks on a device that are killed: the others go on, or new ones come. CuPy is the pretend one."""

import os
import re

import numpy as np
import pytest

from tests import pretend
from tests.scaffe.runs import ROOT
from tests.scaffe.training.fault_tolerance.runs import ENVIRONMENT, make, train, weights

pytestmark = [pytest.mark.mpi_job, pretend.needs_compiler]
CARRIED = {"ipc": ({}, []), "staged": ({"SCAFFE_CUDA_IPC": "0"}, []),
           "nccl": ({"PRETEND_GPUS": "3"}, ["-reduce", "nccl"])}
ON_DEVICE = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/pretend/path"), ENVIRONMENT["PYTHONPATH"]])}


@pytest.mark.parametrize(("how", "strategy", "victims", "carried"), [
    ("shrink", "sc-rs", "2:5", "ipc"), ("shrink", "sc-obr", "0:5", "staged"), ("replace", "sc-b", "1:4", "ipc"),
    ("shrink", "ssp -slack 0", "1:5", "ipc"), ("shrink", "sc-rs", "1:5", "nccl"),
    *(pytest.param(*case, marks=pytest.mark.thorough) for case in (
        ("shrink", "sc-b", "0:6", "ipc"), ("shrink", "sc-obr", "1:4,0:10", "ipc"), ("shrink", "sc-rs", "1:5", "staged"),
        ("shrink", "sc-ob", "2:5", "ipc"), ("replace", "sc-rs", "2:4", "ipc"), ("replace", "sc-obr", "0:4", "staged"),
        ("shrink", "sc-b", "0:6", "nccl"), ("shrink", "sc-obr", "1:4,0:10", "nccl"), ("shrink", "sc-ob", "2:5", "nccl"),
        ("replace", "sc-rs", "2:4", "nccl"), ("replace", "sc-obr", "0:4", "nccl"),
        ("shrink", "ssp -slack 0", "1:5", "nccl"), ("replace", "ssp -slack 0", "0:4", "staged")))])
def test_the_weights_are_an_undisturbed_ranks(tmp_path, databases, undisturbed, how, strategy, victims, carried):
    variables, flags = CARRIED[carried]
    result = train(make(tmp_path, databases, victims), "-gpu", "all", "-strategy", *strategy.split(), "-on_rank_loss",
                   how, *flags, n_ranks=3, **ON_DEVICE, **variables)
    assert result.returncode == 0 or how == "replace", result.stderr
    assert "Optimization Done" in result.stderr, result.stderr
    assert re.findall(r"Lost in iteration \d+: rank .* of 3 ranks; (\d) go on", result.stderr), result.stderr
    if how == "replace":
        assert "New ranks have come in" in result.stderr, result.stderr
    np.testing.assert_allclose(weights(tmp_path), undisturbed, rtol=5e-3, atol=1e-5)


@pytest.mark.parametrize("flags", [["sc-rs", "-precision", "fp16"], *(
    pytest.param(flags, marks=pytest.mark.thorough) for flags in (
        ["downpour", "-n_sync", "1"], ["ssp", "-slack", "1"], ["sc-obr", "-precision", "fp16", "-reduce", "CB-node"]))],
    ids=" ".join)
def test_training_goes_on(tmp_path, databases, flags):
    result = train(make(tmp_path, databases, "2:5"), "-gpu", "all", "-on_rank_loss", "shrink", "-strategy", *flags,
                   n_ranks=3, **ON_DEVICE)
    assert result.returncode == 0, result.stderr
    assert "Optimization Done" in result.stderr
    assert re.findall(r"Lost in iteration \d+: rank .* of 3 ranks; 2 go on", result.stderr), result.stderr
    assert np.isfinite(weights(tmp_path)).all()


@pytest.mark.thorough
@pytest.mark.parametrize(("strategy", "victim"), [("ssp", 0), ("ssp", 2), ("downpour", 1), ("downpour", 2)])
def test_training_goes_on_without_a_worker_or_a_server(tmp_path, databases, strategy, victim):
    victims = "0:5:KILL:2" if victim == 2 else f"{victim}:5"  # 2 serves, and has no net
    result = train(make(tmp_path, databases, victims), "-gpu", "all", "-on_rank_loss", "shrink", "-strategy", strategy,
                   "-servers", "1", n_ranks=3, **ON_DEVICE)
    assert result.returncode == 0, result.stderr
    assert "Optimization Done" in result.stderr
    assert re.findall(r"Lost in iteration \d+: rank .* of 3 ranks; 2 go on", result.stderr), result.stderr
    assert np.isfinite(weights(tmp_path)).all()
