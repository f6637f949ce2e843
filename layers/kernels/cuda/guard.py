"""Updates that are left out where a gradient is not finite; the host is not asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.reductions import check_finite


class Guard:
    """Looks at gradients, and makes an update's factor say whether to leave it out."""

    def __init__(self) -> None:
        cupy = device.load()
        self._flag = cupy.zeros(1, np.int32)
        self._n_left_out = cupy.zeros(1, np.int32)

    def look(self, gradients: Sequence[Any]) -> Any:
        """Look at flat arrays. Returns the flag, int32 (1,), not 0 where a number is not finite."""
        self._flag[...] = 0
        for gradient in gradients:
            check_finite(gradient, self._flag)
        return self._flag

    def checked(self, factor: Any) -> Any:
        """An update's factor, a number or as ``clip_factor`` gives it, with what ``look`` found beside it."""
        both = device.load().empty(2, np.float32)
        both[:1] = factor[:1] if hasattr(factor, "__cuda_array_interface__") else factor
        both[1:] = self._flag
        self._n_left_out += self._flag != 0
        return both

    def take(self) -> float:
        """How many updates were left out since last time; waits for the device."""
        n_left_out = float(self._n_left_out[0])
        self._n_left_out[...] = 0
        return n_left_out
