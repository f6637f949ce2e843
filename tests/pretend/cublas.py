"""cuBLAS: CuPy's module, which refuses streams that are being captured, and the library behind it, by its C names.

Products are of column-major matrices at raw addresses.
"""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tests.pretend import compiler
from tests.pretend.contexts import current_device, touch
from tests.pretend.memory import allocation_at
from tests.pretend.queue import Stream, current_stream, stream_at
from tests.pretend.tf32 import rounded_to_tf32

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_32F_FAST_TF32 = 68, 70, 77
INVALID_VALUE, NOT_SUPPORTED = 7, 15  # cublasStatus_t
_DTYPES: dict[int, Any] = {0: np.float32, 1: np.float64, 2: np.float16}


class Refused(Exception):
    """A call that cuBLAS answers with this status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(f"cuBLAS status {status}: {why}")
        self.status = status


def _dtype(code: int) -> np.dtype:
    if code == 14:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(_DTYPES[code])


def _matrix(at: int, rows: int, columns: int, leading: int, dtype: np.dtype) -> np.ndarray:
    """Column-major memory."""
    if leading < max(rows, 1):
        raise Refused(INVALID_VALUE, f"leading dimension {leading} of {rows} rows")
    n_elems = leading * (columns - 1) + rows if rows and columns else 0
    if not n_elems:
        return np.empty((rows, columns), dtype)
    raw = np.frombuffer((ctypes.c_uint8 * (n_elems * dtype.itemsize)).from_address(at), np.uint8).view(dtype)
    return as_strided(raw, (rows, columns), (dtype.itemsize, leading * dtype.itemsize))


def gemmEx(handle: int, *numbers: int) -> None:
    """CuPy's call, on the current stream."""
    _in_order(numbers)


def gemmStridedBatchedEx(handle: int, *numbers: int) -> None:
    """CuPy's call, on the current stream."""
    _in_order(numbers)


def _in_order(numbers: tuple[int, ...]) -> None:
    if current_stream().is_capturing():
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
    if len(numbers) == 18:  # of one product: no steps, no number of products
        numbers = (*numbers[:9], 0, *numbers[9:12], 0, *numbers[12:16], 0, 1, *numbers[16:])
    gemm(current_stream(), *numbers)


def gemm(stream: Stream, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, a_code: int, lda: int,
         a_step: int, B: int, b_code: int, ldb: int, b_step: int, beta: int, C: int, c_code: int, ldc: int,
         c_step: int, n_batch: int, compute: int, algorithm: int) -> None:
    """C (m, n) = alpha op(A) op(B) + beta C, summed in the compute type, for each of a batch; steps in elements."""
    wide = np.float64 if compute == CUBLAS_COMPUTE_64F else np.float32
    factors = rounded_to_tf32 if compute == CUBLAS_COMPUTE_32F_FAST_TF32 else np.asarray
    if (compute == CUBLAS_COMPUTE_64F) != (c_code == 1) or a_code != b_code or c_code not in (a_code, 0):
        raise Refused(NOT_SUPPORTED, f"types {a_code}, {b_code}, {c_code}, compute {compute}")
    number = ctypes.c_double if wide is np.float64 else ctypes.c_float
    factor, keep = number.from_address(alpha).value, number.from_address(beta).value
    a_type, b_type, c_type = _dtype(a_code), _dtype(b_code), _dtype(c_code)
    shapes = ((k, m) if transa else (m, k)), ((n, k) if transb else (k, n))
    for at, shape, leading, dtype in ((A, shapes[0], lda, a_type), (B, shapes[1], ldb, b_type),
                                      (C, (m, n), ldc, c_type)):
        _matrix(at, *shape, leading, dtype)

    def run() -> None:
        for i in range(n_batch):
            a = factors(_matrix(A + i * a_step * a_type.itemsize, *shapes[0], lda, a_type).astype(wide))
            b = factors(_matrix(B + i * b_step * b_type.itemsize, *shapes[1], ldb, b_type).astype(wide))
            c = _matrix(C + i * c_step * c_type.itemsize, m, n, ldc, c_type)
            product = factor * ((a.T if transa else a) @ (b.T if transb else b))
            c[...] = product if keep == 0 else product + keep * c.astype(wide)
    if m and n:
        stream.add(run)


# -- the library -----------------------------------------------------------------------------------------------------
class Handle:
    """What the C functions do on one handle, of one device: its stream and workspace."""

    def __init__(self) -> None:
        self.device_id = touch()
        self.stream: Stream | None = None
        self.workspace = (0, 0)

    def setStream(self, handle: int, stream: int) -> None:
        """Which also takes the workspace away."""
        if stream_at(stream).device_id not in (-1, self.device_id):
            raise Refused(INVALID_VALUE, "the stream is of another device than the handle")
        self.stream, self.workspace = stream_at(stream), (0, 0)

    def setWorkspace(self, handle: int, place: int, n_bytes: int) -> None:
        """Of device memory, on a multiple of 256."""
        if place % 256 or allocation_at(place) is None:
            raise Refused(INVALID_VALUE, f"workspace at {place:#x}")
        self.workspace = place, n_bytes

    def gemm(self, handle: int, *numbers: int) -> None:
        """In capture with a workspace only: cuBLAS would take memory else."""
        if current_device() != self.device_id:
            raise Refused(INVALID_VALUE, f"device {current_device()} is current, the handle is of {self.device_id}")
        if self.stream is None:
            raise Refused(INVALID_VALUE, "no stream was set")
        if self.stream.is_capturing() and not self.workspace[1]:
            raise Refused(NOT_SUPPORTED, "captured without a workspace")
        gemm(self.stream, *numbers)


N_NUMBERS = {"setStream": 2, "setWorkspace": 3, "gemm": 23}
_handles: dict[int, Handle] = {}


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_longlong))
def _called(name: bytes, numbers: Any) -> int:
    if name == b"create":
        _handles[numbers[0]] = Handle()
        return 0
    try:
        getattr(_handles[numbers[0]], name.decode())(*numbers[:N_NUMBERS[name.decode()]])
    except Refused as refused:
        return refused.status
    return 0


class Module(ModuleType):
    """``cupy.cuda.cublas``; the functions of its shared library are the C ones."""

    def __init__(self) -> None:
        super().__init__("cupy.cuda.cublas")
        self.__dict__.update({name: found for name, found in globals().items() if name.startswith(("CUBLAS", "gemm"))})

    @property
    def __file__(self) -> str:  # type: ignore[override]
        path = compiler.library("cublas.cpp")
        ctypes.CDLL(path).set_callback(_called)
        return path
