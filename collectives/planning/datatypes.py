"""Element types and reduction operations, and MPI's names for them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from scaffe.collectives.errors import CommError

DTYPES = ("float32", "float64", "float16", "int32", "int64")
DEVICE_DTYPES = (*DTYPES, "bfloat16")
NAMES = {np.dtype(name): name for name in DTYPES}
"""NumPy dtype -> name; NumPy works a dtype's name out anew at every call."""
OPS = ("sum", "max", "min", "prod")
NUMPY_OPS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
MPI_TYPES = {"float32": "FLOAT", "float64": "DOUBLE", "int32": "INT32_T", "int64": "INT64_T", "float16": "UINT16_T"}
MPI_OPS = {"sum": "SUM", "max": "MAX", "min": "MIN", "prod": "PROD"}


@cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of a dtype, cached because NumPy computes it anew at every call."""
    return dtype.name


def check_op(op: str) -> None:
    """Raises CommError unless `op` is a known operation."""
    if not isinstance(op, str) or op not in OPS:
        raise CommError(f"op must be one of {', '.join(OPS)}, not {op!r}")


def check(array: np.ndarray) -> None:
    """Raises CommError unless `array` is a contiguous host array of a known dtype."""
    if array.dtype not in NAMES:
        raise CommError(f"dtype must be one of {', '.join(DTYPES)}, not {array.dtype.name}")
    if not array.flags.c_contiguous:
        raise CommError(f"expected a contiguous array, got shape {array.shape} with strides {array.strides}")


@cache
def mpi_type(type_name: str) -> Any:
    """MPI's datatype for a NumPy dtype name; float16 travels as 16-bit words (MPI has no half type)."""
    from mpi4py import MPI

    return getattr(MPI, MPI_TYPES[type_name])


@cache
def mpi_op(op: str, type_name: str) -> Any:
    """MPI's operation; for float16 one of our own that adds half-precision words with numpy."""
    from mpi4py import MPI

    if type_name != "float16":
        return getattr(MPI, MPI_OPS[op])
    ufunc = NUMPY_OPS[op]

    def half(invec: Any, inoutvec: Any, datatype: Any) -> None:
        result = np.frombuffer(inoutvec, np.float16)
        ufunc(np.frombuffer(invec, np.float16), result, out=result)

    return MPI.Op.Create(half, commute=True)
