"""Matrix products of row-major arrays by cuBLAS, called by address: CuPy's calls refuse a stream that is being
captured."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_longlong, c_size_t, c_void_p
from typing import Any, NamedTuple

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.launch import wide


class Precision:
    """The setting of ``-tf32``, read when plans are built: factors of float32 products may be rounded to 10 bits of
    mantissa (sums stay float32)."""

    tf32 = False


precision = Precision()


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
    """A cuBLAS handle with its workspace, whose calls are queued on CuPy's current stream. Raises LayerError if cuBLAS
    refuses."""

    def __init__(self) -> None:
        # CuPy's module is linked to the library, so its functions are found through it, whatever wheel it came in.
        library = ctypes.CDLL(device.load().cuda.cublas.__file__)
        self._functions = {name: getattr(library, name) for name in ARGUMENTS}
        for name, types in ARGUMENTS.items():
            self._functions[name].argtypes = types
        self._handle, self._stream = c_void_p(), -1
        self._check("cublasCreate_v2", ctypes.byref(self._handle))
        self._workspace: Any = device.load().empty(WORKSPACE_BYTES, np.uint8)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of products with all its arguments but the handle."""
        self._check(name, self._on_current_stream(), *arguments)

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


CUDA_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType_t
COMPUTE_32F, COMPUTE_64F, COMPUTE_32F_TF32 = 68, 70, 77  # cublasComputeType_t
DEFAULT_ALGORITHM = -1


class Matrix(NamedTuple):
    """A row-major matrix in device memory: the address of its first element, elements between the starts of two rows,
    whether its transpose is meant, and elements between two matrices of a batch."""

    at: int
    row: int
    transposed: bool = False
    step: int = 0


def matrix(a: Any, transposed: bool = False) -> Matrix:
    """A whole C-contiguous array of two axes."""
    return Matrix(a.data.ptr, max(a.shape[1], 1), transposed)


def columns(a: Any, chosen: slice) -> Matrix:
    """Adjacent columns of a C-contiguous array of two axes."""
    return Matrix(a.data.ptr + chosen.start * a.dtype.itemsize, max(a.shape[1], 1))


def multiply(m: int, n: int, k: int, a: Matrix, b: Matrix, c: Matrix, dtypes: tuple[Any, Any], *,
             add: bool = False, n_batch: int = 1) -> None:
    """c (m, n) = a (m, k) b (k, n), or += if ``add``, for row-major matrices, or for ``n_batch`` of each. Sums are
    float32, or float64 for float64; TF32 if configured. ``dtypes`` are those of a and b, and of c.

    cuBLAS is column-major and computes cᵀ = bᵀ aᵀ on the same memory."""
    if min(m, n) == 0:
        return
    narrow, result = (CUDA_TYPES[np.dtype(d).name] for d in dtypes)
    real = wide(dtypes[0])
    one, keep = _SCALARS[real.name, 1].ctypes.data, _SCALARS[real.name, int(add)].ctypes.data
    has_tf32 = narrow == CUDA_TYPES["float32"] and precision.tf32
    compute = COMPUTE_64F if real == np.float64 else COMPUTE_32F_TF32 if has_tf32 else COMPUTE_32F
    sizes = (int(b.transposed), int(a.transposed), n, m, k, one)
    if n_batch == 1:
        cublas().call("cublasGemmEx", *sizes, b.at, narrow, b.row, a.at, narrow, a.row, keep, c.at, result, c.row,
                      compute, DEFAULT_ALGORITHM)
    else:
        cublas().call("cublasGemmStridedBatchedEx", *sizes, b.at, narrow, b.row, b.step, a.at, narrow, a.row, a.step,
                      keep, c.at, result, c.row, c.step, n_batch, compute, DEFAULT_ALGORITHM)


_SCALARS = {(name, value): np.full(1, value, name) for name in ("float32", "float64") for value in (0, 1)}
