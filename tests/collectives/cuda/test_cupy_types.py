"""The pretend CuPy has all that the package's types say it uses of CuPy."""

from __future__ import annotations

import pytest

from scaffe.collectives.cuda import cupy_types
from tests import pretend


def members(protocol):
    return {name for name in vars(protocol) | protocol.__annotations__
            if not name.startswith("_") or name in ("__enter__", "__exit__", "__getitem__", "__setitem__")}


@pytest.mark.parametrize(("protocol", "make"), [
    (cupy_types.CuPy, lambda cp: cp), (cupy_types.Cuda, lambda cp: cp.cuda),
    (cupy_types.Runtime, lambda cp: cp.cuda.runtime), (cupy_types.DeviceArray, lambda cp: cp.zeros(3)),
    (cupy_types.CudaStream, lambda cp: cp.cuda.Stream()), (cupy_types.CudaEvent, lambda cp: cp.cuda.Event()),
    (cupy_types.CudaDevice, lambda cp: cp.cuda.Device()), (cupy_types.CudaPointer, lambda cp: cp.zeros(3).data),
    (cupy_types.Flags, lambda cp: cp.zeros(3).flags),
])
def test_nothing_is_missing(monkeypatch, protocol, make):
    thing = make(pretend.install(monkeypatch, ipc=True))
    assert members(protocol)
    assert not [name for name in members(protocol) if not hasattr(thing, name)]
