"""The update of one interval of the flat parameters; histories are kept for that interval only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scaffe.layers.kernels.backend import Backend
from scaffe.nets.flat_params import ALIGN_ELEMS, Allocate, FlatParams
from scaffe.training.update_rules.base import Hyper, UpdateRule


class ShardUpdater:
    """One interval of the flat parameters, and this rank's histories of it.

    The arrays that are updated begin at the cache line that holds the interval's start, up to ``ALIGN_ELEMS`` - 1
    elements before it, so that a device's kernels can use vector loads.

    Args:
        interval: start and stop, in elements of the buffers; not empty.
        make_plan: (interval, origin) → the plan that updates this interval, where the arrays it is given begin at
            element ``origin`` of the flat buffers. Called at the first update.

    Attributes:
        n_elems, n_histories: of each history, and of them. They get memory when they are first used.
        is_blank: whether the histories have not been written, and are zero.
        gradient_at: the element of ``params.diff`` where the interval's gradient begins.
    """

    def __init__(self, rule: UpdateRule, params: FlatParams, interval: slice, kernels: Backend,
                 make_plan: Callable[[slice, int], Any]) -> None:
        self.interval, self._params, self._kernels, self._make_plan = interval, params, kernels, make_plan
        self._origin = interval.start - interval.start % ALIGN_ELEMS
        self.n_elems, self.n_histories = interval.stop - self._origin, rule.n_histories
        self._arrays: list[Any] | None = None
        self.is_blank, self.gradient_at = True, interval.start
        self._plan: Any = None

    @property
    def _histories(self) -> list[Any]:
        if self._arrays is None:
            self._arrays = [self._params.zeros(self.n_elems, self._params.dtype) for _ in range(self.n_histories)]
        return self._arrays

    def move(self, allocate: Allocate) -> None:
        """Give each history new memory, and copy it there, unless they are blank, as the new memory is."""
        old, blank = self._arrays, self.is_blank
        self._arrays = [allocate(self.n_elems, self._params.dtype) for _ in range(self.n_histories)]
        for array, before in zip(self._arrays, [] if blank or old is None else old, strict=False):
            array[...] = before

    def bind(self, index: int, memory: Any) -> None:
        arrays = self._arrays = self._arrays or [None] * self.n_histories
        arrays[index] = memory[:self.n_elems * self._params.dtype.itemsize].view(self._params.dtype)
        self.is_blank = False

    @property
    def n_bytes(self) -> int:
        return int(self.n_histories * self.n_elems * self._params.dtype.itemsize)

    def update(self, hyper: Hyper, factor: Any, writes_copies: bool = False) -> None:
        """Update the interval's parameters and histories by its summed gradients.

        Args:
            factor: multiplies every gradient: a float, or the device array that a device's ``clip_factor`` and guard
                return.
            writes_copies: whether ``params.copies`` get the new parameters too.
        """
        if self._plan is None:
            self._plan = self._make_plan(self.interval, self._origin)
        self.is_blank, place = False, slice(self._origin, self.interval.stop)
        copies = {"copy": self._params.copies[place]} if writes_copies and self._params.copies is not None else {}
        at = self.gradient_at - self.interval.start
        diff = self._params.diff[place.start + at:place.stop + at]
        self._plan.run(self._params.data[place], diff, self._histories, hyper, factor, **copies)

    def history(self, index: int) -> np.ndarray:
        """One history of the interval, (n,), in host memory: a view on the CPU, a copy from a device."""
        return self._kernels.to_host(self._histories[index][self.interval.start - self._origin:])

    def part(self, index: int, start: int, stop: int) -> Any:
        self.is_blank = False
        return self._histories[index][start - self._origin:stop - self._origin]

    def load(self, index: int, start: int, values: np.ndarray) -> None:
        """Copy the values that lie in the interval into a history.

        Args:
            start: the element of the flat buffers that ``values[0]`` belongs to.
            values: (n,), in host memory.
        """
        first, last = max(start, self.interval.start), min(start + len(values), self.interval.stop)
        if first < last:
            history, part = self._histories[index], values[first - start:last - start]
            if not isinstance(history, np.ndarray):
                part = self._kernels.to_device(part, self._params.dtype)
            history[first - self._origin:last - self._origin] = part
            self.is_blank = False
