"""cuBLAS's products, called by address: CuPy's own calls refuse a stream that is being captured for a CUDA graph.

A handle and a workspace of our own: products then take no memory while they are captured, and no other caller's
settings change them (cuBLAS Library, "CUDA Graphs Support" and ``cublasSetWorkspace``).
"""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_longlong, c_size_t, c_void_p
from typing import Any

import numpy as np

from scaffe.layers.base.errors import LayerError
from scaffe.layers.kernels import device

WORKSPACE_BYTES = 32 << 20  # what NVIDIA advises for Hopper; older cards need less
_SIZES = (c_void_p, c_int, c_int, c_int, c_int, c_int)  # handle, both operations, m, n, k
_END = (c_int, c_int)  # compute type, algorithm
ARGUMENTS = {
    "cublasCreate_v2": (c_void_p,),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasSetWorkspace_v2": (c_void_p, c_void_p, c_size_t),
    "cublasGemmEx": (*_SIZES, c_void_p, *(c_void_p, c_int, c_int) * 2, c_void_p, c_void_p, c_int, c_int, *_END),
    "cublasGemmStridedBatchedEx": (*_SIZES, c_void_p, *(c_void_p, c_int, c_int, c_longlong) * 2, c_void_p,
                                   c_void_p, c_int, c_int, c_longlong, c_int, *_END),
}


class Cublas:
    """A cuBLAS handle with its workspace. Calls are queued on CuPy's current stream.

    Raises:
        LayerError: cuBLAS refuses a call (from every method).
    """

    def __init__(self) -> None:
        # CuPy's module is linked to the library, so its functions are found through it, whatever wheel it came in.
        library = ctypes.CDLL(device.load().cuda.cublas.__file__)
        self._functions = {name: getattr(library, name) for name in ARGUMENTS}
        for name, types in ARGUMENTS.items():
            self._functions[name].argtypes = types
        self._handle, self._stream = c_void_p(), -1
        self._check("cublasCreate_v2", ctypes.byref(self._handle))
        self._workspace: Any = device.load().empty(WORKSPACE_BYTES, np.uint8)

    def gemm(self, *arguments: Any) -> None:
        """``cublasGemmEx``, all arguments but the handle."""
        self._check("cublasGemmEx", self._on_current_stream(), *arguments)

    def gemm_batch(self, *arguments: Any) -> None:
        """``cublasGemmStridedBatchedEx``, all arguments but the handle."""
        self._check("cublasGemmStridedBatchedEx", self._on_current_stream(), *arguments)

    def _on_current_stream(self) -> c_void_p:
        stream = device.load().cuda.get_current_stream().ptr
        if stream != self._stream:
            self._check("cublasSetStream_v2", self._handle, stream)  # which takes the workspace away
            self._check("cublasSetWorkspace_v2", self._handle, self._workspace.data.ptr, WORKSPACE_BYTES)
            self._stream = stream
        return self._handle

    def _check(self, name: str, *arguments: Any) -> None:
        status = self._functions[name](*arguments)
        if status:
            raise LayerError(f"{name} gave status {status}")


@device.PerDevice
def cublas() -> Cublas:
    """The current device's handle, created at the first call."""
    return Cublas()
