"""Where a rank's context is made, and when. Pretend CuPy alone."""

import os

import pytest

from scaffe.layers.kernels import device
from scaffe.nets.devices import Compute, make_context
from scaffe.threads import Thread
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


def test_threads_of_ours_begin_on_the_processs_gpu(monkeypatch):
    """Also those that call no CUDA: Python may free another thread's events in them."""
    pretend.install(monkeypatch, n_devices=2)
    device.use(1)
    seen = []
    thread = Thread(lambda: seen.append((contexts.is_bound(), contexts.current_device())), "any")
    thread.start(), thread.join()
    assert seen == [(True, 1)]
