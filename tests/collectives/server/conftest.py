"""The pretend device for the parameter server's tests."""

import pytest

from scaffe.collectives.cuda.kernels import _module as rows_module
from scaffe.collectives.cuda.kernels import kernels
from tests import pretend


@pytest.fixture
def cp(monkeypatch):
    caches = kernels, rows_module
    for cached in caches:
        cached.cache_clear()
    yield pretend.install(monkeypatch)
    for cached in caches:
        cached.cache_clear()
