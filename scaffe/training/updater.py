"""The update of the parameters by the gradients: one rule over the intervals that a rank owns, with Caffe's clipping
and decay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.backend import Backend, is_device
from scaffe.layers.kernels.backend import Guard as GradientGuard
from scaffe.layers.kernels.specs import Segment
from scaffe.nets.flat_params import FlatParams
from scaffe.training.shard_updater import ShardUpdater
from scaffe.training.update_rules import Hyper, UpdateRule, host, update_rules

DECAY_KINDS = ("L2", "L1")


class Updater:
    """The rule, what of the parameters this rank updates by it, and the numbers that change with every update.

    Args:
        param: the SolverParameter message; what is changed in it holds from the next update on.
        params: the net's flat buffers.
        kernels: the backend in whose memory they lie.

    Attributes:
        rule: the update rule that ``param.type`` names.
        gradient_scale: factor on every gradient, what undoes a scaled loss.
        keeps_step: whether updates leave in the diffs what they took off the parameters, as Caffe's do; for those who
            look at diffs after an update (``snapshot_diff``, pycaffe). It costs one more write of the buffer.

    Raises:
        UserError: unknown solver type or regularization, or numbers that the rule cannot work with.
    """

    def __init__(self, param: Any, params: FlatParams, kernels: Backend = cpu) -> None:
        self.param, self.params = param, params
        self.gradient_scale = 1.0
        self.keeps_step = bool(param.snapshot_diff)
        self._kernels = kernels
        self._arithmetic: Any = kernels if is_device(kernels) else host
        self._guard: GradientGuard | None = None
        self._shards: list[ShardUpdater] | None = None
        try:
            self.rule: UpdateRule = update_rules.get(param.type or "SGD")(param)
        except KeyError as error:
            raise UserError(error.args[0]) from error
        if param.regularization_type not in DECAY_KINDS:
            raise UserError(f"regularization_type {param.regularization_type!r} is unknown; known: L1, L2")

    def own(self, intervals: Sequence[slice]) -> None:
        """From now on update these intervals of the flat buffers alone; their histories begin at zero, others go.

        Args:
            intervals: disjoint; empty ones count for nothing. Until this is called, all of the buffers.
        """
        self._shards = [ShardUpdater(self.rule, self.params, interval, self._kernels, self._plan)
                        for interval in intervals if interval.start < interval.stop]

    @property
    def shards(self) -> list[ShardUpdater]:
        """The intervals that this rank updates, with their histories."""
        if self._shards is None:
            self.own([slice(0, self.params.n_elems)])
        return self._shards or []

    def update(self, rate: float, iteration: int, n_ranks: int = 1, sum_of_squares: float | None = None) -> None:
        """Apply the summed gradients in ``params.diff`` to the intervals that this rank owns.

        Args:
            rate: learning rate.
            iteration: iterations done before this one.
            n_ranks: how many ranks' gradients were summed; the update takes their mean.
            sum_of_squares: of the whole summed gradient, where ``params.diff`` has only parts of it.

        Raises:
            UserError: the rule divides by zero (Adam with delta 0 where a gradient is 0, or a momentum of 1).
        """
        mean = self.gradient_scale / n_ranks
        hyper = Hyper(rate, self.param.weight_decay, self.param.regularization_type == "L1",
                      mean / self.param.iter_size, iteration, self.keeps_step)
        factor = self._clip(mean, sum_of_squares)
        if self._guard is not None:
            factor = self._guard.checked(factor)
        try:
            for shard in self.shards:
                shard.update(hyper, factor)
        except ZeroDivisionError as error:
            raise UserError(f"iteration {iteration}: {self.rule.name}'s update divides by zero: the solver's delta is "
                            f"{self.param.delta:g}, momentum {self.param.momentum:g}") from error

    def load_history(self, index: int, start: int, values: np.ndarray) -> None:
        """Take over what this rank owns of a part of one history.

        Args:
            index: which history of the rule.
            start: of the part, as an element of the flat buffers.
            values: (n,) in the host's memory.
        """
        for shard in self.shards:
            shard.load(index, start, values)

    def guard(self) -> None:
        """From now on leave an update out whose gradients, as ``check`` finds, are not all finite (devices only)."""
        if is_device(self._kernels):
            self._guard = self._kernels.Guard()

    def check(self, intervals: Sequence[slice]) -> Any:
        """Look at gradients before they are used, where they are guarded.

        Returns:
            None, or a device's int32 (1,), not 0 where one is not finite: ranks that update parts add theirs up in it.
        """
        return None if self._guard is None else self._guard.look([self.params.diff[place] for place in intervals])

    def take_overflows(self) -> float:
        """How many updates were left out since last time; waits for the device."""
        return 0.0 if self._guard is None else self._guard.take()

    def _plan(self, interval: slice, origin: int) -> Any:
        """What updates an interval of arrays that begin at element ``origin`` of the flat buffers."""
        return self._arithmetic.update_plan(self.rule, list(self._segments(interval, origin)))

    def _segments(self, interval: slice, origin: int) -> Iterator[Segment]:
        for param, place in zip(self.params.params, self.params.slices, strict=True):
            start, stop = max(place.start, interval.start), min(place.stop, interval.stop)
            frozen = not param.lr_mult and not (self.rule.learns_frozen and self.param.weight_decay * param.decay_mult)
            if not frozen and start < stop:
                yield Segment(start - origin, stop - origin, param.lr_mult, param.decay_mult)

    def _clip(self, mean: float, sum_of_squares: float | None) -> Any:
        """The factor that brings the norm of the mean gradient down to clip_gradients."""
        limit = self.param.clip_gradients
        if limit < 0:
            return 1.0
        if sum_of_squares is None:
            return self._arithmetic.clip_factor(self.params.diff, limit, mean)
        norm = sqrt(sum_of_squares) * mean
        return limit / norm if norm > limit else 1.0
