"""CuPy for the tests of GPU kernels: the pretend one, or with SCAFFE_TEST_GPU the card's."""

from __future__ import annotations

import os
from typing import Any

import pytest

from layers import device
from tests import pretend

REAL = bool(os.environ.get("SCAFFE_TEST_GPU"))


@pytest.fixture
def cp(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module."""
    if REAL:
        if device.missing():
            pytest.skip(device.missing())
        return device.load()
    if pretend.compiler.compiler() is None:
        pytest.skip("no C++ compiler to emulate kernels with")
    return pretend.install(monkeypatch)
