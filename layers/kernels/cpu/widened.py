"""Plans for bfloat16 arrays that convert to float32 and use its plan, where there is no bfloat16 kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels.cpu.elementwise import copy
from scaffe.layers.kernels.plans import PoolingPlan, WeightedPlan


class _Buffers:
    """Named float32 arrays, each made at its first use."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, int], np.ndarray] = {}

    def of(self, name: str, like: Any) -> np.ndarray:
        """The flat array of that name, with as many elements as ``like``."""
        found = self._arrays.get((name, like.size))
        if found is None:
            found = self._arrays[name, like.size] = np.zeros(like.size, np.float32)
        return found

    def filled(self, name: str, half: Any) -> np.ndarray:
        """The array of that name, filled with the numbers of ``half``."""
        wide = self.of(name, half)
        copy(half.reshape(-1), wide)
        return wide


class WidenedProduct:
    """A convolution or inner product by the float32 plan; see ``WeightedPlan``."""

    def __init__(self, plan: WeightedPlan) -> None:
        self._plan, self._wide = plan, _Buffers()

    def forward(self, x: Any, w: np.ndarray, b: np.ndarray | None, y: Any, relu_slope: float | None = None) -> None:
        out = self._wide.of("y", y)
        self._plan.forward(self._wide.filled("x", x), w, b, out, relu_slope)
        copy(out, y.reshape(-1))

    def backward_data(self, gy: Any, w: np.ndarray, gx: Any) -> None:
        out = self._wide.of("x", gx)
        self._plan.backward_data(self._wide.filled("y", gy), w, out)
        copy(out, gx.reshape(-1))

    def backward_weights(self, x: Any, gy: Any, gw: np.ndarray, gb: np.ndarray | None, overwrite: bool = False) -> None:
        self._plan.backward_weights(self._wide.filled("x", x), self._wide.filled("y", gy), gw, gb, overwrite)


class WidenedPooling:
    """MAX or AVE pooling without a mask by the float32 plan; see ``PoolingPlan``."""

    def __init__(self, plan: PoolingPlan) -> None:
        self._plan, self._wide = plan, _Buffers()

    def forward(self, x: Any, y: Any, mask: Any = None) -> None:
        out = self._wide.of("y", y)
        self._plan.forward(self._wide.filled("x", x), out)
        copy(out, y.reshape(-1))

    def backward(self, gy: Any, gx: Any) -> None:
        out = self._wide.of("x", gx)
        self._plan.backward(self._wide.filled("y", gy), out)
        copy(out, gx.reshape(-1))
