"""Arrays of other libraries in host memory: PyTorch's, JAX's and whatever else NumPy can view without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.errors import CommError

DLPACK_CPU = 1
"""kDLCPU of DLPack's device types."""


def is_on_host(array: Any) -> bool:
    """Whether `array`, none of NumPy's, says by DLPack or by `__array_interface__` that it lies in host memory.

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
        CommError: its owner does not give its memory away (a tensor that requires a gradient: detach it).
    """
    if isinstance(array, np.ndarray):
        return array
    try:
        return np.asarray(array) if hasattr(array, "__array_interface__") else np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CommError(f"the memory of a {type(array).__name__} cannot be used: {said}") from None
