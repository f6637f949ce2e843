"""Where a rank's context is made, and when. Pretend CuPy alone."""

import os

import pytest

from scaffe.nets.devices import Compute, make_context
from tests import pretend
from tests.pretend import contexts

pytestmark = [pretend.needs_compiler,
              pytest.mark.skipif(bool(os.environ.get("SCAFFE_TEST_GPU")), reason="asks the pretend device")]


@pytest.mark.parametrize(("gpus", "node_rank", "devices"), [
    ("all", 0, {0}), ("all", 3, {1}), ("1", 0, {1}), ("", 1, set()), ("7", 0, set()), ("x", 0, set())])
def test_a_ranks_context_is_made_on_its_gpu_before_mpi_starts(monkeypatch, gpus, node_rank, devices):
    pretend.install(monkeypatch, n_devices=2)
    make_context(Compute(gpus=gpus, node_rank=node_rank))
    assert contexts.devices() == devices
