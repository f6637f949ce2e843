"""The update of the parameters by the gradients: one rule over the flat buffers, with Caffe's clipping and decay."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.flat_params import FlatParams, Param
from scaffe.update_rules import Hyper, UpdateRule, update_rules

DECAY_KINDS = ("L2", "L1")


class Updater:
    """A rule, its histories and the buffers that it changes.

    Args:
        param: the SolverParameter message.
        params: the net's flat buffers.

    Attributes:
        keeps_step: whether updates leave in the diffs what they took off the parameters, as Caffe's do; for those who
            look at diffs after an update (``snapshot_diff``, pycaffe). It costs one more write of the buffer.

    Raises:
        UserError: unknown solver type or regularization.
    """

    def __init__(self, param: Any, params: FlatParams) -> None:
        self.param, self.params = param, params
        self.keeps_step = bool(param.snapshot_diff)
        try:
            self.rule: UpdateRule = update_rules.get(param.type or "SGD")(param)
        except KeyError as error:
            raise UserError(error.args[0]) from error
        if param.regularization_type not in DECAY_KINDS:
            raise UserError(f"regularization_type {param.regularization_type!r} is unknown; known: L1, L2")
        self.histories = [np.zeros(params.n_elems, params.dtype) for _ in range(self.rule.n_histories)]

    def update(self, rate: float, iteration: int, n_ranks: int = 1, interval: slice | None = None,
               sum_of_squares: float | None = None) -> None:
        """Apply the summed gradients in ``params.diff``.

        Args:
            rate: learning rate.
            iteration: iterations done before this one.
            n_ranks: how many ranks' gradients were summed; the update takes their mean.
            interval: the part of the buffers to update (None: all).
            sum_of_squares: of the whole summed gradient, where this rank holds only an interval of it.
        """
        mean = 1.0 / n_ranks
        scale = mean * self._clip(mean, sum_of_squares) / self.param.iter_size
        l1 = self.param.regularization_type == "L1"
        for param, place in self._parts(interval):
            hyper = Hyper(rate * param.lr_mult, self.param.weight_decay * param.decay_mult, l1, scale, iteration,
                          self.keeps_step)
            self.rule.update(self.params.data[place], self.params.diff[place], [h[place] for h in self.histories],
                             hyper)

    def _parts(self, interval: slice | None) -> Iterator[tuple[Param, slice]]:
        for param, place in zip(self.params.params, self.params.slices):
            if interval is not None:
                place = slice(max(place.start, interval.start), min(place.stop, interval.stop))
            frozen = not param.lr_mult and not (self.rule.learns_frozen and self.param.weight_decay * param.decay_mult)
            if not frozen and place.start < place.stop:
                yield param, place

    def _clip(self, mean: float, sum_of_squares: float | None) -> float:
        """The factor that brings the norm of the mean gradient down to clip_gradients."""
        limit = self.param.clip_gradients
        if limit < 0:
            return 1.0
        if sum_of_squares is None:
            sum_of_squares = float(np.dot(self.params.diff, self.params.diff))
        norm = sqrt(sum_of_squares) * mean
        return limit / norm if norm > limit else 1.0
