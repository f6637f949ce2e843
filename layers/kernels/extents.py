"""Checks of array sizes ahead of kernels, which get addresses and would read or write outside an array too short.

An array of the wrong size belongs to a blob that was reshaped after the layer's ``reshape``.
"""

from __future__ import annotations

from typing import Any

from scaffe.layers.base.errors import LayerError


def expect_elems(n_elems: int, *arrays: Any) -> None:
    """Raise LayerError unless each array has n_elems elements; None is skipped."""
    for array in arrays:
        if array is not None and array.size != n_elems:
            raise mismatch(n_elems, array.size)


def expect_shape(shape: tuple[int, ...], *arrays: Any) -> None:
    """Raise LayerError unless each array has that shape; None is skipped."""
    for array in arrays:
        if array is not None and array.shape != shape:
            raise mismatch(shape, array.shape)


def mismatch(expected: int | tuple[int, ...], got: int | tuple[int, ...]) -> LayerError:
    """The error for an array whose number of elements, or shape, is not what the kernel was built for."""
    what = "elements" if isinstance(expected, int) else "as rows and columns"
    return LayerError(f"expected a blob of {expected} {what}, got {got}: it was reshaped after the layer was")
