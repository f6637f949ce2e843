"""The pretend device array: host memory that NumPy cannot touch by accident.

Work that is queued holds the memory it was given, as a kernel holds addresses, and never the array: an array that is
dropped too early leaves its memory to the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.lib.stride_tricks import as_strided

from tests.pretend.memory import MemoryPointer, alloc, host_reader
from tests.pretend.queue import current_stream, enqueue, host_waits, settings

CUDA = 2  # DLPack's kDLCUDA
COMPARISONS = ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal")
NOT_BFLOAT16 = ("sort", "argsort", "partition", "argpartition", "lexsort")  # nor, as CuPy 14, matmul of stacks
READS_VALUES = ("nonzero", "flatnonzero", "argwhere", "unique", "array_equal", "allclose", "bincount", "extract",
                "union1d", "intersect1d", "setdiff1d", "compress")  # shapes that depend on values: the host waits


class ndarray(NDArrayOperatorsMixin):
    """As CuPy's: refuses NumPy arrays as operands, queues its work on the current stream.

    Args:
        shape, dtype, memptr, strides, order: as in CuPy.
    """

    __array_priority__ = 100
    __module__ = "cupy"

    def __init__(self, shape: Any, dtype: Any = float, memptr: MemoryPointer | None = None, strides: Any = None,
                 order: str = "C") -> None:
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)
        dtype = np.dtype(dtype)
        n_bytes = prod(shape) * dtype.itemsize
        pointer = memptr if memptr is not None else alloc(n_bytes)
        if strides is not None:
            start = np.frombuffer(pointer.mem.bytes, dtype, offset=pointer.offset)
            self._become(as_strided(start, shape, strides), pointer.mem)
            return
        flat = pointer.mem.bytes[pointer.offset:pointer.offset + n_bytes]
        if len(flat) < n_bytes:
            raise AssertionError(f"{n_bytes} bytes reach behind memory of {pointer.mem.size}")
        self._become(flat.view(dtype).reshape(shape, order=order), pointer.mem)

    def _become(self, host: np.ndarray, memory: Any) -> None:
        self._host, self._memory = host, memory

    # -- what it is ----------------------------------------------------------------------------------------------
    shape = property(lambda self: self._host.shape)
    strides = property(lambda self: self._host.strides)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    itemsize = property(lambda self: self._host.itemsize)
    nbytes = property(lambda self: self._host.nbytes)
    flags = property(lambda self: self._host.flags)
    T = property(lambda self: self.transpose())
    flat = property(lambda self: self.ravel())

    @property
    def base(self) -> ndarray | None:
        """None for an array that starts its memory."""
        return None if self._memory.ptr == self._host.ctypes.data and self._memory.size == self.nbytes else self

    @property
    def data(self) -> MemoryPointer:
        """The place of its first element."""
        return MemoryPointer(self._memory, self._host.ctypes.data - self._memory.ptr)

    @property
    def device(self) -> Any:
        """Whose memory it lies in."""
        from tests.pretend.device import Device

        return Device(self._memory.device_id)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface = self._host.__array_interface__
        strides = None if self._host.flags.c_contiguous else self.strides
        return {"shape": self.shape, "typestr": interface["typestr"], "descr": interface["descr"], "version": 3,
                "strides": strides, "data": (self._host.ctypes.data if self.size else 0, False),
                "stream": current_stream().ptr or 1}

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        """A capsule of the host memory, which its receiver may not read before the stream has been waited for."""
        return self._host.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self._memory.device_id

    # -- between host and device ---------------------------------------------------------------------------------
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy "
                        "array explicitly.")

    def get(self, stream: Any = None, order: str = "C", out: np.ndarray | None = None,
            blocking: bool = True) -> np.ndarray:
        """A copy on the host, or into ``out``; without blocking it is made on the stream."""
        if out is None:
            out = np.empty(self.shape, self.dtype, order=order)
        elif out.dtype != self.dtype:
            raise TypeError(f"{out.dtype} array cannot be obtained from {self.dtype} array")
        elif out.shape != self.shape:
            raise ValueError(f"Shape mismatch. Expected shape: {self.shape}, actual shape: {out.shape}")
        if not (out.flags.c_contiguous and self.flags.c_contiguous):
            with stream or current_stream():  # put in order first: what `use()` has chosen is forgotten
                pass
        if blocking:
            host_waits("get", stream)
            np.copyto(out, self._host)
        else:
            held = self._host
            enqueue(lambda: np.copyto(out, held), stream)
        return out

    def set(self, arr: np.ndarray, stream: Any = None) -> None:
        """Copy from the host, on the stream; from pinned memory when the copy runs."""
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if self.dtype != arr.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if self.shape != arr.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        if not self._host.flags.c_contiguous:
            raise RuntimeError("Cannot set to non-contiguous array")
        source = np.ascontiguousarray(arr)
        read = host_reader(source.ctypes.data, self._host.ctypes.data, self.nbytes, stream)
        enqueue(lambda: (read(), source), stream)

    def item(self, *args: Any) -> Any:
        """A Python number; the host waits."""
        return self.get().item(*args)

    def tolist(self) -> Any:
        """The host waits."""
        return self.get().tolist()

    def tobytes(self, order: str = "C") -> bytes:
        """The host waits."""
        return self.get().tobytes(order)

    def __float__(self) -> float:
        return float(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __index__(self) -> int:
        return self.get().__index__()

    def __bool__(self) -> bool:
        return bool(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    # -- views and elements --------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Any:
        if any(isinstance(k, ndarray) and k.dtype == bool for k in (key if isinstance(key, tuple) else (key,))):
            host_waits("boolean index")
        return call("getitem", lambda a, *k: a[_joined(k)], (self, *_split(key)), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        keys = host(_split(key))
        source = value._host if isinstance(value, ndarray) else value

        target = self._host

        def run() -> None:
            target[_joined(keys)] = source
        enqueue(run)

    def fill(self, value: Any) -> None:
        """Every element that number."""
        self[...] = value

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        """A view where strides allow, else a copy."""
        return call("reshape", lambda a: a.reshape(*shape, order=order), (self,), {})

    def view(self, dtype: Any = None) -> ndarray:
        """The same memory."""
        return call("view", lambda a: a.view() if dtype is None else a.view(dtype), (self,), {})

    def astype(self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: Any = None,
               copy: bool = True) -> ndarray:
        """A copy of another type."""
        if not copy and self.dtype == np.dtype(dtype):
            return self
        return call("astype", lambda a: a.astype(dtype, casting=casting), (self,), {})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in METHODS:
            raise AttributeError(f"'cupy.ndarray' object has no attribute {name!r}")
        return lambda *args, **kwargs: call(name, getattr(np.ndarray, name), (self, *args), kwargs)

    # -- NumPy's protocols ---------------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if "where" in kwargs:
            raise TypeError(f"Wrong arguments {{'where': {kwargs['where']!r}}}")
        if method not in ("__call__", "reduce", "outer", "accumulate", "at") or len(kwargs.get("out", (0,))) != 1:
            return NotImplemented
        if ufunc.__name__ in COMPARISONS:
            inputs = tuple(x.item() if isinstance(x, np.ndarray) and x.ndim == 0 else x for x in inputs)
        if "out" in kwargs:
            kwargs["out"] = kwargs["out"][0]
        return call(ufunc.__name__, getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        import cupy

        module = cupy
        for part in function.__module__.split(".")[1:]:
            module = getattr(module, part, None)
        found = getattr(module, function.__name__, None)
        return NotImplemented if found is None else found(*args, **kwargs)


METHODS = {"all", "any", "argmax", "argmin", "argsort", "clip", "conj", "copy", "cumsum", "cumprod", "diagonal", "dot",
           "flatten", "max", "mean", "min", "nonzero", "prod", "ravel", "repeat", "round", "sort", "squeeze", "std",
           "sum", "swapaxes", "take", "trace", "transpose", "var", "real", "imag", "choose", "compress"}


def adopt(values: np.ndarray) -> ndarray:
    """A new device array with these values, at once."""
    order = "F" if values.flags.f_contiguous and not values.flags.c_contiguous else "C"
    made = ndarray(values.shape, values.dtype, order=order)
    made._host[...] = values
    return made


def wrapped(host_view: np.ndarray, memory: Any) -> ndarray:
    """An array on memory that another one holds."""
    made = ndarray.__new__(ndarray)
    made._become(host_view, memory)
    return made


def _split(key: Any) -> tuple:
    return tuple(key) if isinstance(key, tuple) else (key, None, "one")  # the marks tell one key from a tuple of one


def _joined(keys: tuple) -> Any:
    return keys[0] if len(keys) == 3 and isinstance(keys[2], str) else keys


def host(value: Any, refuse: bool = False) -> Any:
    """The host arrays of device arrays, through lists, tuples and dicts; NumPy arrays may be refused."""
    if isinstance(value, ndarray):
        return value._host
    if refuse and isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, (list, tuple)):
        return type(value)(host(v, refuse) for v in value)
    if isinstance(value, dict):
        return {k: host(v, refuse) for k, v in value.items()}
    return value


def _device_arrays(values: Any) -> list[ndarray]:
    if isinstance(values, ndarray):
        return [values]
    if isinstance(values, dict):
        values = list(values.values())
    return [a for v in values for a in _device_arrays(v)] if isinstance(values, (list, tuple)) else []


def call(name: str, function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
    """Run NumPy's function on the memory of device arrays: in the stream's order, as late as the stream runs."""
    refuse = name != "getitem"
    if name in NOT_BFLOAT16 or name == "matmul":
        narrow = [a.ndim > 2 or name != "matmul" for a in _device_arrays(args) if a.dtype.name == "bfloat16"]
        if any(narrow):
            raise NotImplementedError(f"{name} of arrays with dtype 'bfloat16' is not supported")
    given, named = host(args, refuse), host(kwargs, refuse)
    out = kwargs.get("out")
    if out is not None:
        enqueue(lambda: function(*given, **named))
        return out
    stream = current_stream()
    if name in READS_VALUES:
        host_waits(name)
    elif not settings.deferred and not stream.graph:
        stream.drain()
    with np.errstate(all="ignore"):
        result = _first(lambda: function(*given, **named), stream)
    inputs = _device_arrays(args) + _device_arrays(kwargs)
    later = (settings.deferred or stream.graph) and name not in READS_VALUES
    redo = (lambda: function(*given, **named)) if later else None
    return _results(result, inputs, redo)


def _first(function: Callable[[], Any], stream: Any) -> Any:
    """Run it now for its shape, before its inputs are there; where that fails, after they are."""
    try:
        return function()
    except (IndexError, ValueError, FloatingPointError, ZeroDivisionError):
        if not settings.deferred or stream.graph:
            raise
        stream.drain()
        return function()


def _results(result: Any, inputs: list[ndarray], redo: Callable[[], Any] | None) -> Any:
    """Wrap what a function gave: views of its inputs, or new arrays that are filled when the stream gets there."""
    if isinstance(result, (tuple, list)):
        if any(isinstance(r, np.ndarray) for r in result):
            parts = [(lambda i=i: redo()[i]) if redo else None for i in range(len(result))]
            return type(result)(_results(r, inputs, part) for r, part in zip(result, parts))
        return result
    if not isinstance(result, (np.ndarray, np.generic)):
        return result
    values = np.asarray(result)
    for source in inputs:
        if values.size and np.may_share_memory(values, source._host):
            return source if values is source._host else wrapped(values, source._memory)
    if redo is None:
        return adopt(values)
    made = ndarray(values.shape, values.dtype)  # poisoned until the work runs
    target = made._host
    enqueue(lambda: np.copyto(target, redo()))
    return made
