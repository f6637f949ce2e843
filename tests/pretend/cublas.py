"""The products of cuBLAS that we call, on column-major matrices at raw addresses."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tests.pretend.queue import enqueue

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_GEMM_DEFAULT, CUBLAS_GEMM_DEFAULT_TENSOR_OP = -1, 99
CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_COMPUTE_32F_FAST_TF32 = 68, 69, 77
CUBLAS_COMPUTE_64F = 70
CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE = 0, 1
CUBLAS_DEFAULT_MATH, CUBLAS_TENSOR_OP_MATH, CUBLAS_PEDANTIC_MATH, CUBLAS_TF32_TENSOR_OP_MATH = 0, 1, 2, 3
_DTYPES: dict[int, Any] = {0: np.float32, 1: np.float64, 2: np.float16}


def _dtype(code: int) -> np.dtype:
    if code == 14:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(_DTYPES[code])


def _matrix(at: int, rows: int, columns: int, leading: int, dtype: np.dtype) -> np.ndarray:
    """Column-major memory."""
    if leading < max(rows, 1):
        raise ValueError(f"CUBLAS_STATUS_INVALID_VALUE: leading dimension {leading} of {rows} rows")
    n_elems = leading * (columns - 1) + rows if rows and columns else 0
    if not n_elems:
        return np.empty((rows, columns), dtype)
    raw = np.frombuffer((ctypes.c_uint8 * (n_elems * dtype.itemsize)).from_address(at), np.uint8).view(dtype)
    return as_strided(raw, (rows, columns), (dtype.itemsize, leading * dtype.itemsize))


def gemmEx(handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, Atype: int, lda: int,
           B: int, Btype: int, ldb: int, beta: int, C: int, Ctype: int, ldc: int, computeType: int, algo: int) -> None:
    """C (m, n) = alpha op(A) op(B) + beta C, summed in the compute type."""
    gemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B, Btype, ldb, 0, beta, C, Ctype,
                         ldc, 0, 1, computeType, algo)


def gemmStridedBatchedEx(handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, Atype: int,
                         lda: int, strideA: int, B: int, Btype: int, ldb: int, strideB: int, beta: int, C: int,
                         Ctype: int, ldc: int, strideC: int, batchCount: int, computeType: int, algo: int) -> None:
    """So for a batch; strides in elements."""
    wide = np.float64 if computeType == CUBLAS_COMPUTE_64F else np.float32
    if (computeType == CUBLAS_COMPUTE_64F) != (Ctype == 1) or Atype != Btype:
        raise ValueError(f"CUBLAS_STATUS_NOT_SUPPORTED: types {Atype}, {Btype}, {Ctype}, compute {computeType}")
    if Ctype != Atype and Ctype != 0:
        raise ValueError(f"CUBLAS_STATUS_NOT_SUPPORTED: types {Atype}, {Btype}, {Ctype}")
    number = ctypes.c_double if wide is np.float64 else ctypes.c_float
    factor, keep = number.from_address(alpha).value, number.from_address(beta).value
    a_type, b_type, c_type = _dtype(Atype), _dtype(Btype), _dtype(Ctype)

    def run() -> None:
        for i in range(batchCount):
            shape_a, shape_b = ((k, m) if transa else (m, k)), ((n, k) if transb else (k, n))
            a = _matrix(A + i * strideA * a_type.itemsize, *shape_a, lda, a_type).astype(wide)
            b = _matrix(B + i * strideB * b_type.itemsize, *shape_b, ldb, b_type).astype(wide)
            c = _matrix(C + i * strideC * c_type.itemsize, m, n, ldc, c_type)
            product = factor * ((a.T if transa else a) @ (b.T if transb else b))
            c[...] = product if keep == 0 else product + keep * c.astype(wide)
    if m and n:
        enqueue(run)


def setMathMode(handle: int, mode: int) -> None:
    """Products choose their compute type themselves."""


def setPointerMode(handle: int, mode: int) -> None:
    """Scalars lie on the host."""
    if mode != CUBLAS_POINTER_MODE_HOST:
        raise NotImplementedError("scalars on the device")


def getPointerMode(handle: int) -> int:
    """On the host."""
    return CUBLAS_POINTER_MODE_HOST


def setStream(handle: int, stream: int) -> None:
    """Products run on the current stream, as CuPy has them do."""
