"""The update of one interval of the flat parameters, with histories of that interval alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scaffe.layers.kernels.backend import Backend
from scaffe.nets.flat_params import ALIGN_ELEMS, FlatParams
from scaffe.training.update_rules.base import Hyper, UpdateRule


class ShardUpdater:
    """One interval of the flat parameters, and this rank's histories of it.

    Arrays begin up to ``ALIGN_ELEMS`` - 1 elements before the interval, where a cache line does: a device's kernels
    then read parameters and histories in packs.

    Args:
        rule: the update rule.
        params: the net's flat buffers.
        interval: start and stop, in elements of the buffers; not empty.
        kernels: the backend in whose memory the buffers lie.
        make_plan: (interval, origin) → what updates an interval of arrays that begin at element ``origin``; called at
            the first update.

    Attributes:
        interval: as given.
    """

    def __init__(self, rule: UpdateRule, params: FlatParams, interval: slice, kernels: Backend,
                 make_plan: Callable[[slice, int], Any]) -> None:
        self.interval, self._params, self._kernels, self._make_plan = interval, params, kernels, make_plan
        self._origin = interval.start - interval.start % ALIGN_ELEMS
        n_elems = interval.stop - self._origin
        self._histories = [params.zeros(n_elems, params.dtype) for _ in range(rule.n_histories)]
        self._plan: Any = None

    @property
    def n_bytes(self) -> int:
        """Bytes that the histories take on this rank."""
        return sum(history.nbytes for history in self._histories)

    def update(self, hyper: Hyper, factor: Any) -> None:
        """Apply the summed gradients of the interval.

        Args:
            hyper: the numbers of this update.
            factor: on every gradient: a number, or what a device's ``clip_factor`` and guard give.
        """
        if self._plan is None:
            self._plan = self._make_plan(self.interval, self._origin)
        place = slice(self._origin, self.interval.stop)
        self._plan.run(self._params.data[place], self._params.diff[place], self._histories, hyper, factor)

    def history(self, index: int) -> np.ndarray:
        """One of the rule's histories of the interval, (n,) in the host's memory; there it is the history itself."""
        return self._kernels.to_host(self._histories[index][self.interval.start - self._origin:])

    def load(self, index: int, start: int, values: np.ndarray) -> None:
        """Take over what of the values lies in the interval.

        Args:
            index: which history.
            start: element of the flat buffers that the values begin at.
            values: (n,) in the host's memory.
        """
        first, last = max(start, self.interval.start), min(start + len(values), self.interval.stop)
        if first < last:
            part = self._kernels.to_device(values[first - start:last - start], self._params.dtype)
            self._histories[index][first - self._origin:last - self._origin] = part
