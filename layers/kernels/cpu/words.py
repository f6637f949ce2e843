"""Arrays of bfloat16, for which NumPy and compiled loops have no arithmetic of their own."""

from __future__ import annotations

from typing import Any

import numpy as np


def words(array: Any) -> Any:
    """The array for a compiled loop: a bfloat16 one as its words, uint16, of the same memory; any other as it is."""
    return array.view(np.uint16) if array.dtype.kind == "V" else array


def wide(dtype: Any) -> np.dtype:
    """The type to compute in: float32 for half types, else ``dtype``."""
    return np.promote_types(dtype, np.float32)
