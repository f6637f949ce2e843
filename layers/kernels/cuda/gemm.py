"""Matrix products of row-major arrays by cuBLAS."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scaffe.layers.kernels.cuda.cublas import cublas
from scaffe.layers.kernels.cuda.launch import wide
from scaffe.layers.kernels.cuda.precision import precision

CUDA_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType_t
COMPUTE_32F, COMPUTE_64F, COMPUTE_32F_TF32 = 68, 70, 77  # cublasComputeType_t
DEFAULT_ALGORITHM = -1


class Matrix(NamedTuple):
    """A row-major matrix in device memory.

    Attributes:
        at: the address of its first element.
        row: elements between the starts of two rows.
        turned: use the transpose.
        step: elements between two matrices of a batch.
    """

    at: int
    row: int
    turned: bool = False
    step: int = 0


def matrix(a: Any, turned: bool = False) -> Matrix:
    """A whole C-contiguous array of two axes."""
    return Matrix(a.data.ptr, max(a.shape[1], 1), turned)


def columns(a: Any, chosen: slice) -> Matrix:
    """Adjacent columns of a C-contiguous array of two axes."""
    return Matrix(a.data.ptr + chosen.start * a.dtype.itemsize, max(a.shape[1], 1))


def multiply(m: int, n: int, k: int, a: Matrix, b: Matrix, c: Matrix, dtypes: tuple[Any, Any], *,
             add: bool = False, n_batch: int = 1) -> None:
    """c (m, n) = a (m, k) b (k, n), or += if ``add``. Sums are float32, or float64 for float64; TF32 if configured.

    Args:
        m, n, k: the product's sizes.
        a, b, c: the matrices, row-major. cuBLAS is column-major and computes cᵀ = bᵀ aᵀ on the same memory.
        dtypes: (of a and b, of c).
        add: add to c instead of writing it.
        n_batch: number of products, whose matrices lie ``step`` elements apart.
    """
    if min(m, n) == 0:
        return
    narrow, result = (CUDA_TYPES[np.dtype(d).name] for d in dtypes)
    real = wide(dtypes[0])
    one, keep = _SCALARS[real.name, 1].ctypes.data, _SCALARS[real.name, int(add)].ctypes.data
    compute = COMPUTE_64F if real == np.float64 else _compute(narrow)
    sizes = (int(b.turned), int(a.turned), n, m, k, one)
    if n_batch == 1:
        cublas().gemm(*sizes, b.at, narrow, b.row, a.at, narrow, a.row, keep, c.at, result, c.row, compute,
                      DEFAULT_ALGORITHM)
    else:
        cublas().gemm_batch(*sizes, b.at, narrow, b.row, b.step, a.at, narrow, a.row, a.step, keep, c.at, result,
                            c.row, c.step, n_batch, compute, DEFAULT_ALGORITHM)


def _compute(narrow: int) -> int:
    return COMPUTE_32F_TF32 if narrow == CUDA_TYPES["float32"] and precision.tf32 else COMPUTE_32F


_SCALARS = {(name, value): np.full(1, value, name) for name in ("float32", "float64") for value in (0, 1)}
