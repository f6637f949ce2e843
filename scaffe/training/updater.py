"""The update of the parameters: the solver's rule, with Caffe's clipping and decay, on the intervals a rank owns; and
its histories, gathered from the ranks that own them in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import sqrt
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.errors import UserError
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.backend import Backend, is_device
from scaffe.layers.kernels.backend import Guard as GradientGuard
from scaffe.layers.kernels.specs import Segment
from scaffe.nets.flat_params import Allocate, FlatParams
from scaffe.training.shard_updater import ShardUpdater
from scaffe.training.update_rules import Hyper, UpdateRule, base, update_rules

DECAY_KINDS = ("L2", "L1")


class Updater:
    """Updates the intervals of the flat parameters that this rank owns, by the solver's update rule. Raises UserError
    if unknown solver type or regularization, or numbers that the rule does not allow.

    Args:
        param: the SolverParameter message. A change made in it takes effect at the next update.
        rule: None for the one that ``param.type`` names.

    Attributes:
        shards: one updater, with its histories, for each interval that this rank owns: at first the whole buffers.
        everything: the shards, and those of which this rank keeps a copy.
        gradient_scale: factor on every gradient.
        guard: what skips updates and scales the loss for fp16; None elsewhere.
        keeps_step: whether an update writes the step, the amount subtracted from each parameter, into the diffs, as
            Caffe does. Needed by whoever reads the diffs after an update (``snapshot_diff``, pycaffe); costs one more
            write of the buffer.
        fetch_all: fetches all histories into memory if a memory plan has offloaded some; call it before reading them.
        whole: gives memory for whole histories, which ranks or shards hold in parts.
        around: gives a with-block in which a shard and its histories are in memory.
        updated: called there when the shard has been updated.
        writes_copies: whether an update writes the parameters' copies for kernels too. For whoever owns all parameters,
            and whose forward reads what the update wrote.
    """

    def __init__(self, param: Any, params: FlatParams, kernels: Backend = cpu,
                 rule: UpdateRule | None = None) -> None:
        self.param, self.params = param, params
        self.gradient_scale = 1.0
        self.keeps_step = bool(param.snapshot_diff)
        self.writes_copies = False
        self.fetch_all: Callable[[], None] = lambda: None
        self.whole: Allocate = np.zeros
        self.around: Callable[[ShardUpdater], AbstractContextManager[Any]] = lambda shard: nullcontext()
        self.updated: Callable[[ShardUpdater], None] = lambda shard: None
        self._ahead: set[ShardUpdater] = set()
        self._kernels = kernels
        self._arithmetic: Any = kernels if is_device(kernels) else base
        self.guard: GradientGuard | None = None
        try:
            self.rule: UpdateRule = rule or update_rules.get(param.type or "SGD")(param)
        except KeyError as error:
            raise UserError(error.args[0]) from error
        if param.regularization_type not in DECAY_KINDS:
            raise UserError(f"regularization_type {param.regularization_type!r} is unknown; known: L1, L2")
        self.own([slice(0, params.n_elems)])

    def own(self, intervals: Sequence[slice], copied: Sequence[slice] = ()) -> None:
        """Update only these intervals of the flat buffers from now on, with new histories, all zero.

        Args:
            intervals: in elements; disjoint. Empty ones are ignored.
            copied: likewise, those that another rank owns and this one updates too.
        """
        self.shards = self._shards_of(intervals)
        self.everything = [*self.shards, *self._shards_of(copied)]

    def _shards_of(self, intervals: Sequence[slice]) -> list[ShardUpdater]:
        return [ShardUpdater(self.rule, self.params, interval, self._kernels, self._plan)
                for interval in intervals if interval.start < interval.stop]

    def update(self, rate: float, iteration: int, n_ranks: int = 1, sum_of_squares: float | None = None) -> None:
        """Update the intervals that this rank owns by the summed gradients in ``params.diff``. Raises UserError if the
        rule divides by zero (Adam with delta 0 where a gradient is 0, or with a momentum of 1).

        Args:
            rate: learning rate.
            iteration: iterations done before this one.
            n_ranks: how many ranks' gradients were summed; the update uses their mean.
            sum_of_squares: of the whole summed gradient, for clipping when ``params.diff`` holds only part of it; None
                if it holds all.
        """
        mean = self.gradient_scale / n_ranks
        factor = self.clip_factor(None, n_ranks, sum_of_squares)
        if self.guard is not None:
            factor = self.guard.checked(factor)
        for shard in self.everything:
            if shard not in self._ahead:
                self._update(shard, rate, iteration, mean, factor)
        self._ahead.clear()
        if self.writes_copies:
            self.params.trust_copies(True)

    def update_ahead(self, place: slice, rate: float, iteration: int, n_ranks: int = 1) -> None:
        """Update what this rank owns of an interval of the flat buffers, whose gradients are summed, without clipping.
        The next ``update`` leaves it out. Arguments and errors as there."""
        for shard in self.everything:
            if place.start <= shard.interval.start < place.stop:
                self._update(shard, rate, iteration, self.gradient_scale / n_ranks, 1.0)
                self._ahead.add(shard)

    def _update(self, shard: ShardUpdater, rate: float, iteration: int, mean: float, factor: Any) -> None:
        hyper = Hyper(rate, self.param.weight_decay, self.param.regularization_type == "L1",
                      mean / self.param.iter_size, iteration, self.keeps_step)
        try:
            with self.around(shard):
                shard.update(hyper, factor, self.writes_copies)
                self.updated(shard)
        except ZeroDivisionError as error:
            raise UserError(f"iteration {iteration}: {self.rule.name}'s update divides by zero: the solver's "
                            f"delta is {self.param.delta:g}, momentum {self.param.momentum:g}") from error

    def clip_factor(self, gradient: Any = None, n_summed: int = 1, sum_of_squares: float | None = None) -> Any:
        """The factor that reduces the L2 norm of a gradient to ``clip_gradients``; 1 where it is not above it. Returns
        a number; from a device's backend float32 (2,) there, whose first element is the factor.

        Args:
            gradient: (n_elems,), a sum over ranks; ``params.diff`` if None.
            n_summed: over how many; the norm is that of their mean.
            sum_of_squares: of the whole gradient, where this is a part of it.
        """
        limit, mean = self.param.clip_gradients, self.gradient_scale / n_summed
        if limit < 0:
            return 1.0
        if self.guard is not None:
            mean = self.guard.inverse * mean
        if sum_of_squares is None:
            return self._arithmetic.clip_factor(self.params.diff if gradient is None else gradient, limit, mean)
        norm = sqrt(sum_of_squares) * float(mean)
        return limit / norm if norm > limit else 1.0

    def load_history(self, index: int, start: int, values: np.ndarray) -> None:
        """Copy those of the values that this rank owns into one of the rule's histories.

        Args:
            start: the element of the flat buffers that ``values[0]`` belongs to.
            values: (n,), in host memory.
        """
        self.fetch_all()
        for shard in self.everything:
            shard.load(index, start, values)

    def check(self, intervals: Sequence[slice]) -> Any:
        """Check that the gradients are finite, if there is a ``guard``; to be called before ``update``. Returns None
        without one; else an int32 (1,) on the device, not 0 if a gradient is nan or infinite. Ranks sum it in place, so
        that all of them skip the update or none does, and all adapt the loss's factor alike.

        Args:
            intervals: of the flat buffers, those whose gradients this rank will use.
        """
        return None if self.guard is None else self.guard.look([self.params.diff[place] for place in intervals])

    def _plan(self, interval: slice, origin: int) -> Any:
        return self._arithmetic.update_plan(self.rule, list(self.segments(interval, origin)))

    def segments(self, interval: slice, origin: int) -> Iterator[Segment]:
        """The parameters in an interval that the rule changes, or whose histories it changes. ``origin``: the element
        of the flat buffers from which the segments count."""
        for param, place in zip(self.params.params, self.params.slices, strict=True):
            start, stop = max(place.start, interval.start), min(place.stop, interval.stop)
            frozen = not param.lr_mult and not (self.rule.learns_frozen and self.param.weight_decay * param.decay_mult)
            if not frozen and start < stop:
                yield Segment(start - origin, stop - origin, param.lr_mult, param.decay_mult, place.start - origin,
                              param.blob.kernel_order or (1, 1))


MOST_BYTES = 1 << 24
"""The most bytes that one gather brings to the root, all ranks' parts together: a snapshot needs little more memory
than what it writes."""

HistoryPart = tuple[int, np.ndarray]
"""The first element, and the values from there on."""


def updater_parts(updater: Updater, index: int, with_copies: bool = False) -> list[HistoryPart]:
    """The parts of one history that an updater holds, of those included that other ranks own if ``with_copies``."""
    updater.fetch_all()
    shards = updater.everything if with_copies else updater.shards
    return [(shard.interval.start, shard.history(index)) for shard in shards]


def filled(place: slice, parts: Sequence[HistoryPart]) -> np.ndarray:
    """An interval of a flat array, (place.stop - place.start,), of parts that cover it; one at least."""
    values = np.zeros(place.stop - place.start, parts[0][1].dtype)
    for start, held in parts:
        first, last = max(start, place.start), min(start + len(held), place.stop)
        if first < last:
            values[first - place.start:last - place.start] = held[first - start:last - start]
    return values


def gather_parts(own: Sequence[Sequence[HistoryPart]], n_elems: int, dtype: np.dtype, communicator: Communicator,
                 root: int = 0, zeros: Allocate = np.zeros) -> list[np.ndarray]:
    """Whole arrays, on root, of parts that ranks hold. Called by all ranks. Returns on root the flat arrays, zero where
    no rank holds a part; elsewhere an empty list.

    Args:
        own: for each array, this rank's parts; no two ranks hold the same element.
        n_elems, dtype: of the whole arrays; they count on root alone.
    """
    found = []
    for parts in own:
        if communicator.rank == root:
            found.append(_whole(parts, n_elems, dtype, zeros))
        for start, values in _others(parts, communicator, root):
            found[-1][start:start + len(values)] = values
    return found


def _whole(own: Sequence[HistoryPart], n_elems: int, dtype: np.dtype, zeros: Allocate) -> np.ndarray:
    """Root's own parts in an array of full length. A single part that covers everything is returned uncopied."""
    if len(own) == 1 and len(own[0][1]) == n_elems:
        return own[0][1]
    whole: np.ndarray = zeros(n_elems, dtype)
    for start, values in own:
        whole[start:start + len(values)] = values
    return whole


def _others(own: Sequence[HistoryPart], communicator: Communicator, root: int) -> Iterator[HistoryPart]:
    """On root: the other ranks' parts as (first element, values), in pieces that keep within MOST_BYTES."""
    most = MOST_BYTES // communicator.n_ranks
    cuts = [] if communicator.rank == root else [
        (start + at, values[at:at + most // values.itemsize])
        for start, values in own for at in range(0, len(values), most // values.itemsize)]
    for i in range(max(communicator.allgather_objects(len(cuts)))):
        gathered = communicator.gather_objects(cuts[i] if i < len(cuts) else None, root)
        yield from (part for part in gathered or [] if part is not None)
