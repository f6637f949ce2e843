"""The functions of the pretend module: NumPy's on device arrays, and those that make arrays."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tests.pretend.array import CUDA, adopt, call, ndarray
from tests.pretend.memory import MemoryPointer, UnownedMemory
from tests.pretend.queue import current_stream, enqueue

# Names that NumPy has and CuPy 14.2 has not.
MISSING = {
    "ScalarType", "asmatrix", "block", "bmat", "char", "clongdouble", "complex256", "core", "ctypeslib",
    "datetime64", "dtypes", "einsum_path", "emath", "errstate", "f2py", "float128", "frompyfunc", "fromregex",
    "geomspace", "getbufsize", "geterr", "histogram_bin_edges", "info", "insert", "isnat", "longdouble", "ma",
    "matrix", "matvec", "memmap", "nanpercentile", "nanquantile", "ndenumerate", "nditer", "nested_iters",
    "object_", "polyder", "polydiv", "polyint", "rec", "recarray", "record", "seterr", "spacing", "str_",
    "strings", "test", "timedelta64", "unstack", "vecdot", "vecmat", "void"}


def array(obj: Any, dtype: Any = None, copy: bool = True, order: str = "K", subok: bool = False, ndmin: int = 0,
          blocking: bool = False) -> ndarray:
    """A new device array."""
    if isinstance(obj, ndarray):
        made = obj.astype(dtype or obj.dtype)
        return made if made.ndim >= ndmin else made.reshape((1,) * (ndmin - made.ndim) + made.shape)
    values = np.array(obj, dtype, ndmin=ndmin)
    current_stream().refuse_in_capture("an array of host memory")  # CuPy's pinned buffer goes to the next such copy
    made = ndarray(values.shape, values.dtype)
    target = made._host
    enqueue(lambda: np.copyto(target, values))
    return made


def asarray(a: Any, dtype: Any = None, order: str | None = None, blocking: bool = False) -> ndarray:
    """A device array; the same one where it is, and of the same memory where it has CUDA's array interface."""
    if hasattr(a, "__cuda_array_interface__") and not isinstance(a, ndarray):
        told = a.__cuda_array_interface__
        place, size = told["data"][0], prod(told["shape"]) * np.dtype(told["typestr"]).itemsize
        pointer = MemoryPointer(UnownedMemory(place, size, a), 0)
        return ndarray(told["shape"], np.dtype(told["typestr"]), pointer, told["strides"])
    return a if isinstance(a, ndarray) and dtype in (None, a.dtype) else array(a, dtype)


def from_dlpack(array: Any, *, device: Any = None, copy: bool | None = None) -> ndarray:
    """A device array of the same memory."""
    if array.__dlpack_device__()[0] != CUDA:
        raise TypeError("Unsupported array type.")
    return asarray(array)


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    """In C order; the same one where it is."""
    if isinstance(a, ndarray) and a.flags.c_contiguous and dtype in (None, a.dtype):
        return a if a.ndim else a.reshape(1)
    return call("ascontiguousarray", np.ascontiguousarray, (asarray(a),), {"dtype": dtype})


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> np.ndarray:
    """A copy on the host."""
    return a.get(stream, order, out, blocking) if isinstance(a, ndarray) else np.asarray(a)


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """Poisoned."""
    return ndarray(shape, dtype, order=order)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    """Every element that number."""
    made = ndarray(shape, np.asarray(fill_value).dtype if dtype is None else dtype, order=order)
    made[...] = fill_value
    return made


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """Zeros."""
    return full(shape, 0, dtype, order)


def ones(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """Ones."""
    return full(shape, 1, dtype, order)


def _like(a: ndarray, dtype: Any, shape: Any) -> tuple[Any, Any]:
    return a.shape if shape is None else shape, dtype or a.dtype


def empty_like(a: ndarray, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> ndarray:
    """Poisoned."""
    return empty(*_like(a, dtype, shape))


def zeros_like(a: ndarray, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> ndarray:
    """Zeros."""
    return zeros(*_like(a, dtype, shape))


def ones_like(a: ndarray, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> ndarray:
    """Ones."""
    return ones(*_like(a, dtype, shape))


def full_like(a: ndarray, fill_value: Any, dtype: Any = None, order: str = "K", subok: Any = None,
              shape: Any = None) -> ndarray:
    """Every element that number."""
    shape, dtype = _like(a, dtype, shape)
    return full(shape, fill_value, dtype)


def arange(*args: Any, **kwargs: Any) -> ndarray:
    """As NumPy's."""
    return adopt(np.arange(*args, **kwargs))


def linspace(*args: Any, **kwargs: Any) -> ndarray:
    """As NumPy's."""
    return adopt(np.linspace(*args, **kwargs))


def eye(*args: Any, **kwargs: Any) -> ndarray:
    """As NumPy's."""
    return adopt(np.eye(*args, **kwargs))


def copyto(dst: ndarray, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    """Copy with broadcasting, from the device or from one number."""
    if isinstance(src, np.ndarray):
        if src.size != 1:
            raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
        src = src.item()
    source = src._host if isinstance(src, ndarray) else src
    mask = True if where is None else where._host
    np.copyto(np.empty((0,), dst.dtype), np.empty((0,), source.dtype) if isinstance(src, ndarray) else source, casting)
    target = dst._host
    enqueue(lambda: np.copyto(target, source, casting, where=mask))


def put_along_axis(arr: ndarray, indices: ndarray, values: Any, axis: Any) -> None:
    """As NumPy's, in place."""
    value = values._host if isinstance(values, ndarray) else values
    target, places = arr._host, indices._host
    enqueue(lambda: np.put_along_axis(target, places, value, axis))


def get_array_module(*args: Any) -> Any:
    """This module where one of them is a device array, else NumPy."""
    import cupy

    return cupy if any(isinstance(a, ndarray) for a in args) else np


def numpy_function(name: str) -> Any:
    """NumPy's name as CuPy has it: a type or number as it is, a function on device arrays."""
    if name in MISSING or name.startswith("_") or not hasattr(np, name):
        raise AttributeError(f"module 'cupy' has no attribute {name!r}")
    found = getattr(np, name)
    if not callable(found) or isinstance(found, type) or name in ("result_type", "can_cast", "promote_types", "dtype",
                                                                  "finfo", "iinfo", "broadcast_shapes", "isscalar"):
        return found

    def function(*args: Any, **kwargs: Any) -> Any:
        return call(name, found, args, kwargs)
    return function
