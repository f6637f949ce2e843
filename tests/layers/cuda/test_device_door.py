"""The door to CuPy: what is there in words, and one line for whatever is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.kernels import device
from tests import pretend


def test_a_device_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend.install(monkeypatch)
    assert (device.missing(), device.count()) == ("", 1)
    words = device.describe()
    assert words["Name"] == "Pretend CUDA device"
    assert words["Compute capability"] == "9.0"
    assert words["Memory bandwidth (by clock and width)"] == "4,917 GB/s"  # 2 · 3.201 GHz · 6144 bits
    assert words["CUDA driver and runtime"] == "12.9, 12.9"
    device.use(0)
    with pytest.raises(LayerError, match="there is no GPU 1: CUDA finds 1, counted from 0"):
        device.use(1)


def test_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "CuPy, which cannot be imported" in device.missing()
    assert "pip install 'scaffe[cuda12]'" in device.missing()
    assert "\n" not in device.missing()
    assert device.count() == 0
    with pytest.raises(LayerError, match="needs CuPy"):
        device.load()


def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend.install(monkeypatch, n_devices=0)
    assert device.missing().startswith("CUDA finds no device: cudaErrorNoDevice")
    assert device.count() == 0


def test_pinned_memory_has_the_shape_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend.install(monkeypatch)
    for asked, shape in ((7, (7,)), ((3, 5), (3, 5)), ((0,), (0,))):
        array = device.pinned(asked, np.float32)
        assert (array.dtype, array.shape) == (np.float32, shape)
        array[...] = 1


def test_streams_run_beside_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cp = pretend.install(monkeypatch)
    stream, x = device.stream(), cp.zeros(4, np.float32)
    with pretend.deferring():
        x += 1
        with stream:
            assert x.get().tolist() == [0] * 4  # nothing made it wait for the default stream
