"""The kinds of memory that arrays lie in, and arrays of other libraries (array interface, DLPack) viewed as NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import datatypes
from scaffe.collectives.transport.host_memory import private_empty

DLPACK_CPU = 1
"""kDLCPU of DLPack's device types."""


def is_on_host(array: Any) -> bool:
    """Whether `array`, which is not NumPy's, says by DLPack or `__array_interface__` that it lies in host memory.

    PyTorch's type has `__cuda_array_interface__` wherever a tensor lies, so DLPack is asked first.
    """
    if isinstance(array, np.ndarray | np.generic):
        return False
    if hasattr(array, "__dlpack_device__"):
        return bool(array.__dlpack_device__()[0] == DLPACK_CPU)
    return hasattr(array, "__array_interface__")


def viewed(array: Any) -> np.ndarray:
    """Views an array of host memory as NumPy's: the same memory, read-only where its owner says so.

    Args:
        array: NumPy's, or one for which `is_on_host` is true.

    Raises:
        CommError: its library does not export it (a tensor that requires a gradient: detach it).
    """
    if isinstance(array, np.ndarray):
        return array
    try:
        return np.asarray(array) if hasattr(array, "__array_interface__") else np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CommError(f"the memory of a {type(array).__name__} cannot be used: {said}") from None


class HostMemory:
    """One kind of memory: NumPy's arrays, and those that NumPy can view by the array interface or DLPack."""

    name = "host"

    def flat(self, array: Any) -> Any:
        """Views an array as a flat one. Raises CommError where it is not contiguous or its dtype is none of ours."""
        own = viewed(array)
        datatypes.check(own)
        return own if own.ndim == 1 else own.reshape(-1)

    def is_writable(self, array: Any) -> bool:
        """Whether the caller's array, as it was given, may be written."""
        return viewed(array).flags.writeable

    def copy(self, target: Any, source: Any) -> None:
        """Copies the flat `source` into the flat `target`, in the caller's order."""
        np.copyto(target, source)

    def prepared(self, target: Any, source: Any) -> Any:
        """The array from which a collective in `target` takes its values: `target`, filled here, or `source`."""
        self.copy(target, source)
        return target

    def point(self, after: Any) -> device.Point | None:
        """A point on a device after the event `after`, in the caller's stream; None in host memory."""
        return None

    def zeros(self, n_elems: int, dtype: np.dtype[Any]) -> Any:
        """Allocates a zeroed flat array of this process's own. Raises CommError on a device where there is none."""
        return private_empty(n_elems, dtype)


class DeviceMemory(HostMemory):
    """CuPy's arrays, and any with `__cuda_array_interface__`."""

    name = "device"

    def flat(self, array: Any) -> Any:
        own = device.flat(array)
        if (name := datatypes.dtype_name(own.dtype)) not in datatypes.DEVICE_DTYPES:
            raise CommError(f"dtype must be one of {', '.join(datatypes.DEVICE_DTYPES)}, not {name}")
        return own

    def is_writable(self, array: Any) -> bool:
        # CuPy knows no other arrays; another library's interface says so
        return isinstance(array, device.load().ndarray) or not array.__cuda_array_interface__["data"][1]

    def copy(self, target: Any, source: Any) -> None:
        target[...] = source

    def prepared(self, target: Any, source: Any) -> Any:
        return source  # its values may come only with an event

    def point(self, after: Any) -> device.Point:
        if after is not None:
            device.Point.of(after).hold()
        return device.Point.now()

    def zeros(self, n_elems: int, dtype: np.dtype[Any]) -> Any:
        return device.zeros(n_elems, dtype)


HOST, DEVICE = HostMemory(), DeviceMemory()
KINDS: dict[str, HostMemory] = {"host": HOST, "device": DEVICE}


def of(array: Any) -> HostMemory:
    """Finds the memory that an array lies in. Raises CommError: `array` is no array that we know."""
    if type(array) is np.ndarray or is_on_host(array):
        return HOST
    if device.is_on_device(array):
        return DEVICE
    if isinstance(array, np.ndarray):
        return HOST
    raise CommError("expected a NumPy array, or one with __array_interface__, __dlpack__ or __cuda_array_interface__, "
                    f"got {type(array).__name__}")


def named(name: str) -> HostMemory:
    """Finds a kind of memory by its name. Raises CommError: there is none of that name; the message lists them."""
    if name not in KINDS:
        raise CommError(f"memory must be one of {', '.join(KINDS)}, not {name!r}")
    return KINDS[name]
