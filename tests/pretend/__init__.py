"""A pretend CuPy: our device code on the host, its kernels emulated, its ordering mistakes made visible.

``install(monkeypatch)`` puts it in CuPy's place for one test. What is not emulated raises AttributeError or
NotImplementedError, never answers something made up.
"""

from __future__ import annotations

import sys
from functools import cache, partial
from types import ModuleType
from typing import Any

import pytest

from scaffe import threads
from scaffe.layers.kernels import driver as driver_door
from tests.pretend import compiler, contexts, cublas, cudnn, device, driver, functions, nvimgcodec, pool, queue
from tests.pretend.array import ndarray
from tests.pretend.queue import deferring, settings

__all__ = ["deferring", "install", "make", "needs_compiler", "ndarray", "settings"]

needs_compiler = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler to emulate kernels with")


def install(monkeypatch: Any, ipc: bool = False, n_devices: int = 1, with_cudnn: bool = False,
            with_decoder: bool = False, page_bytes: int = driver.PAGE_BYTES) -> ModuleType:
    """Be ``cupy`` until the test ends; the module.

    Args:
        monkeypatch: pytest's.
        ipc: other processes can open allocations by handles.
        n_devices: how many there seem to be; 0: as on a machine without one.
        with_cudnn: cuDNN's Frontend can be imported, a pretend one too.
        with_decoder: so can nvidia.nvimgcodec.
        page_bytes: of the driver's shortest pages; 0: a driver without.
    """
    monkeypatch.setattr(threads, "_begin", [])
    monkeypatch.setattr(pool.Settings, "shared", ipc)
    monkeypatch.setattr(device.Settings, "n_devices", n_devices)
    monkeypatch.setattr(settings, "waits", [])
    monkeypatch.setattr(driver_door, "library", cache(partial(driver.Driver, page_bytes)))
    modules = make()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "cudnn", cudnn.module() if with_cudnn else None)
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", nvimgcodec.module() if with_decoder else None)
    contexts.forget()
    queue.forget()
    return modules["cupy"]


def make() -> dict[str, ModuleType]:
    """The modules by name; for a process of its own: ``sys.modules.update(make())``."""
    runtime = device.runtime_module()
    products = cublas.Module()
    cuda = device.cuda_module(runtime, products)
    module = ModuleType("cupy")
    made = ("array", "asarray", "ascontiguousarray", "asnumpy", "empty", "full", "zeros", "ones", "empty_like",
            "zeros_like", "ones_like", "full_like", "arange", "linspace", "eye", "copyto", "put_along_axis",
            "get_array_module")
    module.__dict__.update({name: getattr(functions, name) for name in made})
    pool.forget(device.MemoryPool)
    module.__dict__.update({
        "__path__": [], "__version__": "14.2.0", "cuda": cuda, "ndarray": ndarray, "RawModule": compiler.RawModule,
        "RawKernel": compiler.RawKernel, "get_default_memory_pool": lambda: pool.Default.pool,
        "is_available": cuda.is_available, "get_default_pinned_memory_pool": device.MemoryPool,
        "__getattr__": functions.numpy_function})
    return {"cupy": module, "cupy.cuda": cuda, "cupy.cuda.runtime": runtime, "cupy.cuda.cublas": products,
            "cupy.cuda.device": cuda.device}
