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
        rule: the update rule.
        params: the net's flat buffers.
        interval: start and stop, in elements of the buffers; not empty.
        kernels: the backend in whose memory the buffers lie.
        make_plan: (interval, origin) → the plan that updates this interval, where the arrays it is given begin at
            element ``origin`` of the flat buffers. Called at the first update.

    Attributes:
        is_blank: whether nobody has written the histories, which are zero.
    """

    def __init__(self, rule: UpdateRule, params: FlatParams, interval: slice, kernels: Backend,
                 make_plan: Callable[[slice, int], Any]) -> None:
        self.interval, self._params, self._kernels, self._make_plan = interval, params, kernels, make_plan
        self._origin = interval.start - interval.start % ALIGN_ELEMS
        n_elems = interval.stop - self._origin
        self._histories = [params.zeros(n_elems, params.dtype) for _ in range(rule.n_histories)]
        self.is_blank = True
        self._plan: Any = None

    def move(self, allocate: Allocate) -> None:
        """Give each history new memory, and copy it there, unless they are blank, as the new memory is."""
        for index, old in enumerate(self._histories):
            self._histories[index] = allocate(len(old), old.dtype)
            if not self.is_blank:
                self._histories[index][...] = old

    @property
    def n_bytes(self) -> int:
        """Bytes of this interval's histories."""
        return sum(history.nbytes for history in self._histories)

    def update(self, hyper: Hyper, factor: Any, writes_copies: bool = False) -> None:
        """Update the interval's parameters and histories by its summed gradients.

        Args:
            hyper: the numbers of this update.
            factor: multiplies every gradient: a float, or the device array that a device's ``clip_factor`` and guard
                return.
            writes_copies: whether ``params.copies`` get the new parameters too.
        """
        if self._plan is None:
            self._plan = self._make_plan(self.interval, self._origin)
        self.is_blank, place = False, slice(self._origin, self.interval.stop)
        copies = {"copy": self._params.copies[place]} if writes_copies and self._params.copies is not None else {}
        self._plan.run(self._params.data[place], self._params.diff[place], self._histories, hyper, factor, **copies)

    def history(self, index: int) -> np.ndarray:
        """One history of the interval, (n,), in host memory: a view on the CPU, a copy from a device."""
        return self._kernels.to_host(self._histories[index][self.interval.start - self._origin:])

    def load(self, index: int, start: int, values: np.ndarray) -> None:
        """Copy the values that lie in the interval into a history.

        Args:
            index: which history.
            start: the element of the flat buffers that ``values[0]`` belongs to.
            values: (n,), in host memory.
        """
        first, last = max(start, self.interval.start), min(start + len(values), self.interval.stop)
        if first < last:
            part = self._kernels.to_device(values[first - start:last - start], self._params.dtype)
            self._histories[index][first - self._origin:last - self._origin] = part
            self.is_blank = False
