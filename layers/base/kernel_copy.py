"""A learnable blob's data once more, as the kernels of a half type read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class KernelCopy:
    """Weights in a half type and in the kernels' order, (O, K..., I), beside a blob's own in float32 and Caffe's order.

    Args:
        array: flat, of the half type.
        write: converts the blob's data into it.

    Attributes:
        is_newest: whether the array has the blob's newest data already, as after an update that wrote both.
    """

    def __init__(self, array: Any, write: Callable[[], None]) -> None:
        self.array, self._write = array, write
        self.is_newest = False

    def renewed(self) -> Any:
        """The array with the blob's newest data: what forward reads. Backward reads ``array``, as forward did."""
        if not self.is_newest:
            self._write()
        return self.array
