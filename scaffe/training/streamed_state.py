"""Parameters, gradients and histories of large layers, in memory of their own, so that a memory plan may move them.

Where one rank trains by itself, a layer is updated as soon as its gradient is there (GeePS's clock of a layer), and all
three may leave. Else the gradients of all layers are needed before the first is updated, and only histories leave,
which pass through memory one after another during the update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from scaffe.nets.memory.costs import BYTES_A_SECOND
from scaffe.nets.memory.executor import Executor
from scaffe.nets.memory.pages import anonymous, rounded
from scaffe.nets.memory.parts import Held
from scaffe.nets.memory.state import history_held, large_layers, parameters_held, update_step
from scaffe.training.rates import Scheduled
from scaffe.training.shard_updater import ShardUpdater
from scaffe.training.solver import Solver


class StreamedState:
    """What of a solver's state a plan may move.

    Args:
        solver: built, not yet restored. Its updater gets a shard for each large layer.

    Attributes:
        held: the arrays, of parameters and gradients first.
        is_early: whether layers are updated one by one during backward.
        n_updates: steps that follow backward.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver, self._n_layers = solver, len(solver.net.nodes)
        self.is_early = updates_early(solver)
        self._places = large_layers(solver.net)
        cuts = sorted({edge for place in self._places.values() for edge in (place.start, place.stop)})
        strategy, updater = solver.strategy, solver.updater
        updater.own(cut(strategy.owned(), cuts), cut(strategy.copied(), cuts))
        self._shards = {shard: layer for shard in updater.everything for layer, place in self._places.items()
                        if place.start <= shard.interval.start < place.stop and shard.n_bytes}
        self.n_updates = 0 if self.is_early else len(self._shards)
        self.held = self._parameters() if self.is_early else []
        self._n_parameters = len(self.held)
        for number, shard in enumerate(self._shards):
            self.held += self._histories(number, shard)

    @property
    def parameter_bytes(self) -> int:
        """Of the parameters that may leave."""
        return sum(each.part.n_bytes for each in self.held[:self._n_parameters] if each.part.lasts)

    @property
    def taken_bytes(self) -> int:
        """Of all arrays that may leave, as far as they are parts of parameters, gradients and histories."""
        return (sum(each.memory.nbytes for each in self.held[:self._n_parameters])
                + sum(shard.n_bytes for shard in self._shards))

    def seconds(self, passes: Sequence[float]) -> tuple[float, ...]:
        """Of all steps, where those of the passes are given: updates are estimated."""
        found = [*passes, *[0.0] * self.n_updates]
        for number, (shard, layer) in enumerate(self._shards.items()):
            found[self._update_step(number, layer)] += 3 * shard.n_bytes / BYTES_A_SECOND
        return tuple(found)

    def attach(self, executor: Executor) -> None:
        """Have layers updated within an executor's steps, and arrays brought for those who read them whole."""
        first = len(executor.parts) - len(self.held)
        numbers = range(first, len(executor.parts))
        self._solver.net.params.bring = partial(executor.bring, numbers[:self._n_parameters])
        self._solver.updater.bring = partial(executor.bring, numbers[self._n_parameters:])
        if self.is_early:
            executor.updates = {update_step(self._solver.net, layer): partial(self._update, layer)
                                for layer in self._places}
        else:
            self._solver.updater.around = partial(self._in_step, executor, list(self._shards))

    def _parameters(self) -> list[Held]:
        """Parameters' and gradients' whole pages, in buffers that have new memory."""
        net = self._solver.net
        net.params.move(in_pages)
        for test_net in self._solver.test_nets:
            test_net.share_trained_layers(net)
        return [each for layer, place in self._places.items() for each in parameters_held(net, layer, place)]

    def _histories(self, number: int, shard: ShardUpdater) -> list[Held]:
        layer, pages = self._shards[shard], list[np.ndarray]()

        def in_kept_pages(n_elems: int, dtype: np.dtype) -> np.ndarray:
            pages.append(anonymous(rounded(n_elems * dtype.itemsize)))
            return pages[-1].view(dtype)[:n_elems]

        shard.move(in_kept_pages)
        step = self._update_step(number, layer)
        return [history_held(self._solver.net, layer, memory, step, lambda: shard.is_blank) for memory in pages]

    def _update_step(self, number: int, layer: int) -> int:
        return update_step(self._solver.net, layer) if self.is_early else 2 * self._n_layers + number

    def _update(self, layer: int) -> None:
        """Update a layer, whose backward has run, before all others have."""
        solver = self._solver
        solver.net.params.settle(layer)
        place, rate = self._places[layer], solver.rates.before(solver.iteration)
        with solver.timers("update"):
            for shard in solver.updater.everything:
                if place.start <= shard.interval.start < place.stop:
                    solver.updater.update_ahead(shard, rate, solver.iteration)

    @contextmanager
    def _in_step(self, executor: Executor, streamed: Sequence[ShardUpdater], shard: ShardUpdater) -> Iterator[None]:
        step = 2 * self._n_layers + streamed.index(shard) if shard in streamed else -1
        if step >= 0:
            executor.before(step)
        yield
        if step >= 0:
            executor.after(step)


def updates_early(solver: Solver) -> bool:
    """Whether a layer may be updated before the backward of others: nobody needs all gradients at once."""
    return bool(solver.strategy.updates_early and solver.param.clip_gradients < 0 and not solver.updater.keeps_step
                and isinstance(solver.rates, Scheduled))


def cut(intervals: Sequence[slice], cuts: Sequence[int]) -> list[slice]:
    """The intervals, each divided where a cut lies within it."""
    found = []
    for whole in intervals:
        edges = [whole.start, *(edge for edge in cuts if whole.start < edge < whole.stop), whole.stop]
        found += [slice(start, stop) for start, stop in zip(edges, edges[1:], strict=False)]
    return found


def in_pages(n_elems: int, dtype: np.dtype) -> np.ndarray:
    """Zeros, (n_elems,), with whole pages to themselves."""
    return anonymous(rounded(n_elems * dtype.itemsize)).view(dtype)[:n_elems]
