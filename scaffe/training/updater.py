"""The update of the parameters by the gradients: one rule over the flat buffers, with Caffe's clipping and decay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Any

from scaffe.errors import UserError
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu.updates import Segment
from scaffe.nets.flat_params import FlatParams
from scaffe.training.update_rules import Hyper, UpdateRule, update_rules

DECAY_KINDS = ("L2", "L1")


class Updater:
    """A rule, its histories and the buffers that it changes.

    Args:
        param: the SolverParameter message.
        params: the net's flat buffers.
        kernels: the backend that they belong to.

    Attributes:
        gradient_scale: factor on every gradient, what undoes a scaled loss.
        keeps_step: whether updates leave in the diffs what they took off the parameters, as Caffe's do; for those who
            look at diffs after an update (``snapshot_diff``, pycaffe). It costs one more write of the buffer.

    Raises:
        UserError: unknown solver type or regularization.
    """

    def __init__(self, param: Any, params: FlatParams, kernels: Any = cpu) -> None:
        self.param, self.params, self.kernels = param, params, kernels
        self.gradient_scale = 1.0
        self._guard: Any = None
        self.keeps_step = bool(param.snapshot_diff)
        try:
            self.rule: UpdateRule = update_rules.get(param.type or "SGD")(param)
        except KeyError as error:
            raise UserError(error.args[0]) from error
        if param.regularization_type not in DECAY_KINDS:
            raise UserError(f"regularization_type {param.regularization_type!r} is unknown; known: L1, L2")
        self.histories = [params.zeros(params.n_elems, params.dtype) for _ in range(self.rule.n_histories)]
        self._plans: dict[tuple[int, int], Any] = {}

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
        mean = self.gradient_scale / n_ranks
        hyper = Hyper(rate, self.param.weight_decay, self.param.regularization_type == "L1",
                      mean / self.param.iter_size, iteration, self.keeps_step)
        factor = self._clip(mean, sum_of_squares)
        if self._guard is not None:
            factor = self._guard.checked(factor)
        self._plan(interval).run(self.params.data, self.params.diff, self.histories, hyper, factor)

    def guard(self) -> None:
        """From now on leave an update out whose gradients, as ``check`` finds, are not all finite."""
        self._guard = self.kernels.Guard()

    def check(self, intervals: Sequence[slice]) -> Any:
        """Look at gradients before they are used, where they are guarded.

        Returns:
            None, or a device's int32 (1,), not 0 where one is not finite: ranks that update parts add theirs up in it.
        """
        return None if self._guard is None else self._guard.look([self.params.diff[place] for place in intervals])

    def take_overflows(self) -> float:
        """How many updates were left out since last time; waits for the device."""
        return 0.0 if self._guard is None else self._guard.take()

    def _plan(self, interval: slice | None) -> Any:
        whole = interval or slice(0, self.params.n_elems)
        key = whole.start, whole.stop
        if key not in self._plans:
            self._plans[key] = self.kernels.update_plan(self.rule, list(self._segments(whole)))
        return self._plans[key]

    def _segments(self, whole: slice) -> Iterator[Segment]:
        for param, place in zip(self.params.params, self.params.slices):
            start, stop = max(place.start, whole.start), min(place.stop, whole.stop)
            frozen = not param.lr_mult and not (self.rule.learns_frozen and self.param.weight_decay * param.decay_mult)
            if not frozen and start < stop:
                yield Segment(start, stop, param.lr_mult, param.decay_mult)

    def _clip(self, mean: float, sum_of_squares: float | None) -> Any:
        """The factor that brings the norm of the mean gradient down to clip_gradients."""
        limit = self.param.clip_gradients
        if limit < 0:
            return 1.0
        if sum_of_squares is None:
            return self.kernels.clip_factor(self.params.diff, limit, mean)
        norm = sqrt(sum_of_squares) * mean
        return limit / norm if norm > limit else 1.0
