"""Kernels take addresses and trust their geometry: here arrays are compared with it before any kernel sees them.

Layers give arrays that fit. One that does not belongs to a blob that was reshaped after the layer's ``reshape``.
"""

from __future__ import annotations

from typing import Any

from scaffe.layers.base.errors import LayerError


def expect_elems(n_elems: int, *arrays: Any) -> None:
    """Raise LayerError unless each array (None is none) has that many elements."""
    for array in arrays:
        if array is not None and array.size != n_elems:
            raise mismatch(n_elems, array.size)


def expect_shape(shape: tuple[int, ...], *arrays: Any) -> None:
    """Raise LayerError unless each array (None is none) has that shape."""
    for array in arrays:
        if array is not None and array.shape != shape:
            raise mismatch(shape, array.shape)


def mismatch(expected: int | tuple[int, ...], got: int | tuple[int, ...]) -> LayerError:
    """The error for an array of another number of elements, or of another shape, than the kernel was made for."""
    what = "elements" if isinstance(expected, int) else "as rows and columns"
    return LayerError(f"expected a blob of {expected} {what}, got {got}: it was reshaped after the layer was")
