"""CuPy for the tests of GPU kernels: the pretend one, or with SCAFFE_TEST_GPU the card's."""

from __future__ import annotations

import os
from typing import Any

import pytest

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.cublas import precision
from scaffe.layers.kernels.cuda.cudnn import graphs as cudnn_graphs
from scaffe.layers.kernels.cuda.cudnn import plans as cudnn_plans
from tests import pretend

REAL = bool(os.environ.get("SCAFFE_TEST_GPU"))


@pytest.fixture
def cp(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module; float32 products are exact, unless a test asks for TF32."""
    monkeypatch.setattr(precision, "tf32", False)
    if REAL:
        if device.missing():
            pytest.skip(device.missing())
        return device.load()
    if pretend.compiler.compiler() is None:
        pytest.skip("no C++ compiler to emulate kernels with")
    return pretend.install(monkeypatch)


@pytest.fixture(params=["ours", "cudnn"])
def kind(request: Any, cp: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """With and without cuDNN: whose kernels compute."""
    monkeypatch.setenv("SCAFFE_CACHE", str(tmp_path))
    with_cudnn = request.param == "cudnn"
    if REAL:
        if with_cudnn and cudnn_graphs.frontend() is None:
            pytest.skip(cudnn_graphs.reason())
        if not with_cudnn:
            monkeypatch.setattr(cudnn_graphs, "frontend", lambda: None)
        yield request.param
        return
    pretend.install(monkeypatch, with_cudnn=with_cudnn)
    cudnn_graphs.frontend.cache_clear()
    cudnn_plans.build.cache_clear()
    yield request.param
    cudnn_graphs.frontend.cache_clear()
    cudnn_plans.build.cache_clear()
