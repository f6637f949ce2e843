"""The pretend device for the parameter server's tests."""

import pytest

from scaffe.collectives.cuda import rows
from scaffe.collectives.cuda.kernels import kernels
from tests import pretend


@pytest.fixture
def cp(monkeypatch):
    caches = kernels, rows._module
    for cached in caches:
        cached.cache_clear()
    yield pretend.install(monkeypatch)
    for cached in caches:
        cached.cache_clear()
