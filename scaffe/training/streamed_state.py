"""Parameters, gradients and histories of large layers, in memory of their own, so that a memory plan may move them.

Where the strategy allows it, a layer, or a bucket of them, is summed over the ranks and updated as soon as its gradient
is there (GeePS's clock of a layer), and all three may leave. Else the gradients of all layers are needed before the
first is updated, and only histories leave, which pass through memory one after another during the update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from scaffe.nets.memory.executor import Executor
from scaffe.nets.memory.parts import Held
from scaffe.nets.memory.plans.costs import BYTES_A_SECOND
from scaffe.nets.memory.state import (
    Run,
    large,
    layers_alone,
    layers_of,
    update_step,
)
from scaffe.training.rates import Scheduled
from scaffe.training.shard_updater import ShardUpdater
from scaffe.training.solver import Solver
from scaffe.training.state_below import StateBelow
from scaffe.training.strategies.buckets import Bucket


class StreamedState:
    """What of a solver's state a plan may move. All ranks make one, or none does.

    Args:
        solver: built, not yet restored. Its updater gets a shard for each large run of layers.
        below: gives them places that the plan's memory knows.

    Attributes:
        held: the arrays, of parameters and gradients first.
        n_updates: steps that follow backward.
    """

    def __init__(self, solver: Solver, below: StateBelow) -> None:
        self._solver, self._n_steps = solver, solver.net.steps.n_steps
        self._early = early_buckets(solver) if below.may_update_early() else []
        self._runs: Sequence[Run] = self._early or large(solver.net, layers_alone(solver.net))
        strategy, updater = solver.strategy, solver.updater
        strategy.take_early(self._early)
        cuts = sorted({edge for run in self._runs for edge in (run.place.start, run.place.stop)})
        updater.own(cut(strategy.owned(), cuts), cut(strategy.copied(), cuts))
        for own in strategy.own_updaters:
            own.own(cut([shard.interval for shard in own.shards], cuts))
        self._updaters = [*strategy.own_updaters, updater]
        self._shards = {shard: run for each in self._updaters for shard in each.everything for run in self._runs
                        if run.place.start <= shard.interval.start < run.place.stop and shard.n_bytes}
        self.n_updates = 0 if self._early else len(self._shards)
        self.held, self._taken_bytes = below.parameters(self._early)
        self._n_parameters = len(self.held)
        for number, (shard, run) in enumerate(self._shards.items()):
            self.held += below.histories(shard, run, self._update_step(number, run))

    @property
    def parameter_bytes(self) -> int:
        """Of the parameters that may leave."""
        return sum(each.part.n_bytes for each in self.held[:self._n_parameters] if each.part.forward)

    @property
    def taken_bytes(self) -> int:
        """Of all arrays that may leave, as far as they are parts of parameters, gradients and histories."""
        return self._taken_bytes + sum(shard.n_bytes for shard in self._shards)

    def seconds(self, passes: Sequence[float], bytes_a_second: float = BYTES_A_SECOND) -> tuple[float, ...]:
        """Of all steps, where those of the passes are given: updates are estimated by what they read and write."""
        found = [*passes, *[0.0] * self.n_updates]
        for number, (shard, run) in enumerate(self._shards.items()):
            found[self._update_step(number, run)] += 3 * shard.n_bytes / bytes_a_second
        return tuple(found)

    def attach(self, executor: Executor) -> None:
        """Have layers updated within an executor's steps, and arrays brought for those who read them whole."""
        first = len(executor.parts) - len(self.held)
        numbers = range(first, len(executor.parts))
        self._solver.net.params.bring = partial(executor.bring, numbers[:self._n_parameters])
        for updater in self._updaters:
            updater.bring = partial(executor.bring, numbers[self._n_parameters:])
            if not self._early:
                updater.around = partial(self._in_step, executor, list(self._shards))
        executor.updates = {update_step(self._solver.net, bucket): partial(self._update, bucket)
                            for bucket in self._early}

    def parameters(self, executor: Executor) -> dict[int, Held]:
        """The parameters that may leave, by number in an executor's plan."""
        first = len(executor.parts) - len(self.held)
        return {number: each for number, each in enumerate(self.held[:self._n_parameters], first) if each.part.forward}

    def _update_step(self, number: int, run: Run) -> int:
        return update_step(self._solver.net, run) if self._early else self._n_steps + number

    def _update(self, bucket: Bucket) -> None:
        """Update a bucket, whose backward has run, before all others have."""
        solver = self._solver
        for layer in layers_of(solver.net, bucket):
            solver.net.params.settle(layer)
        solver.strategy.update_early(bucket, solver.rates.before(solver.iteration), solver.iteration)

    @contextmanager
    def _in_step(self, executor: Executor, streamed: Sequence[ShardUpdater], shard: ShardUpdater) -> Iterator[None]:
        step = self._n_steps + streamed.index(shard) if shard in streamed else -1
        if step >= 0:
            executor.before(step)
            executor.again(step)
        yield
        if step >= 0:
            executor.after(step)


def early_buckets(solver: Solver) -> list[Bucket]:
    """What is long and may be updated before the backward of other layers: nobody needs all gradients at once."""
    needs_all = (solver.param.clip_gradients >= 0 or solver.updater.keeps_step
                 or not isinstance(solver.rates, Scheduled))
    return [] if needs_all else large(solver.net, solver.strategy.early())


def cut(intervals: Sequence[slice], cuts: Sequence[int]) -> list[slice]:
    """The intervals, each divided where a cut lies within it."""
    found = []
    for whole in intervals:
        edges = [whole.start, *(edge for edge in cuts if whole.start < edge < whole.stop), whole.stop]
        found += [slice(start, stop) for start, stop in zip(edges, edges[1:], strict=False)]
    return found
