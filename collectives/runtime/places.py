"""Where a caller's array lies, and what a call does there before it is a matter of bytes."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import datatypes
from scaffe.collectives.transport import memory


class Place(Protocol):
    """One kind of memory."""

    name: str

    def flat(self, array: Any, op: str) -> Any:
        """The array as a flat one. Raises CommError unless it is contiguous and `op` can be done on its dtype."""

    def copy(self, target: Any, source: Any) -> None:
        """Give the flat `target` the values of the flat `source`, in the caller's order."""

    def prepared(self, target: Any, source: Any) -> Any:
        """Where a collective in `target` finds its values: there already, or in `source`, from where it copies them."""

    def point(self, after: Any) -> Any:
        """After `after`, in the caller's order, a point for those who wait; None where there is no such order."""

    def zeros(self, n_elems: int, dtype: Any) -> Any:
        """A zeroed flat array of this process's own."""


class HostPlace:
    """NumPy's arrays."""

    name = "host"

    def flat(self, array: np.ndarray, op: str) -> np.ndarray:
        """See Place."""
        datatypes.check(array, op)
        return array if array.ndim == 1 else array.reshape(-1)

    def copy(self, target: np.ndarray, source: np.ndarray) -> None:
        """See Place."""
        np.copyto(target, source)

    def prepared(self, target: np.ndarray, source: np.ndarray) -> np.ndarray:
        """See Place: there already."""
        self.copy(target, source)
        return target

    def point(self, after: Any) -> None:
        """See Place."""

    def zeros(self, n_elems: int, dtype: Any) -> np.ndarray:
        """See Place."""
        return memory.private_empty(n_elems, dtype)


class DevicePlace:
    """CuPy's arrays, and any with `__cuda_array_interface__`."""

    name = "device"

    def flat(self, array: Any, op: str) -> Any:
        """See Place. A CuPy array."""
        own = device.flat(array)
        if op not in datatypes.OPS:
            raise CommError(f"op must be one of {', '.join(datatypes.OPS)}, not {op!r}")
        if (name := datatypes.dtype_name(own.dtype)) not in datatypes.DEVICE_DTYPES:
            raise CommError(f"dtype must be one of {', '.join(datatypes.DEVICE_DTYPES)}, not {name}")
        return own

    def copy(self, target: Any, source: Any) -> None:
        """See Place. On the current stream."""
        target[...] = source

    def prepared(self, target: Any, source: Any) -> Any:
        """See Place: in the source, whose values may come only with an event."""
        return source

    def point(self, after: Any) -> device.Point:
        """See Place."""
        if after is not None:
            device.Point.of(after).hold()
        return device.Point.now()

    def zeros(self, n_elems: int, dtype: Any) -> Any:
        """See Place. Raises CommError without a GPU."""
        return device.load().zeros(n_elems, dtype)


HOST, DEVICE = HostPlace(), DevicePlace()
PLACES = {place.name: place for place in (HOST, DEVICE)}


def of(array: Any) -> Place:
    """The place of an array. Raises CommError on what is no array of a known place."""
    if type(array) is np.ndarray:
        return HOST
    if device.is_on_device(array):
        return DEVICE
    if isinstance(array, np.ndarray):
        return HOST
    raise CommError(f"expected a NumPy array or one with __cuda_array_interface__, got {type(array).__name__}")


def named(name: str) -> Place:
    """The place of that name. Raises CommError with the known ones."""
    if name not in PLACES:
        raise CommError(f"place must be one of {', '.join(PLACES)}, not {name!r}")
    return PLACES[name]
