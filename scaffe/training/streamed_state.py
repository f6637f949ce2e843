"""Parameters, gradients and histories of large layers, in memory of their own, so that a memory plan may move them.

Where the strategy allows it, a layer, or a bucket of them, is summed over the ranks and updated as soon as its gradient
is there (GeePS's clock of a layer), and all three may leave. Else the gradients of all layers are needed before the
first is updated, and only histories leave, which pass through memory one after another during the update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

from scaffe.memory.problem.chunks import (
    Run,
    come_by_rows,
    count_updates,
    large,
    layers_alone,
    layers_of,
    pieces,
    update_steps,
)
from scaffe.memory.problem.costs import BYTES_A_SECOND
from scaffe.memory.problem.tensors import Held
from scaffe.memory.run.executor import Executor
from scaffe.training.learning_rate import Scheduled
from scaffe.training.row_gradients import row_gradients
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
        self._solver = solver
        self._early = early_buckets(solver) if below.may_update_early() else []
        self._runs: Sequence[Run] = self._early or large(solver.net, layers_alone(solver.net))
        strategy, updater = solver.strategy, solver.updater
        strategy.take_early(self._early)
        come_by_rows(solver.net, self._early if strategy.updates_alone else (), below.spreads_rows)
        cuts = sorted({edge for run in self._runs for piece in pieces(solver.net, run)
                       for edge in (piece.start, piece.stop)})
        updater.own(cut(strategy.owned(), cuts), cut(strategy.copied(), cuts))
        for own in strategy.own_updaters:
            own.own(cut([shard.interval for shard in own.shards], cuts))
        self._updaters = [*strategy.own_updaters, updater]
        self._shards = {shard: run for each in self._updaters for shard in each.everything for run in self._runs
                        if run.place.start <= shard.interval.start < run.place.stop and shard.n_bytes}
        self.n_updates = 0 if self._early else len(self._shards)
        runs = [run.first_layer for run in self._shards.values()]
        count_updates(solver.net, {run.first_layer: runs.count(run.first_layer) for run in self._early})
        self._steps = self._steps_of_shards()
        self._rows = row_gradients(solver.net, self._shards)
        self.held, self._taken_bytes = below.parameters(self._early)
        self._n_parameters = len(self.held)
        for shard, run in self._shards.items():
            self.held += below.histories(shard, run, self._steps[shard])

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
        for shard, step in self._steps.items():
            found[step] += 3 * shard.n_bytes / bytes_a_second
        return tuple(found)

    def attach(self, executor: Executor) -> None:
        """Have layers updated within an executor's steps, and arrays brought for those who read them whole."""
        first = len(executor.parts) - len(self.held)
        numbers = range(first, len(executor.parts))
        self._solver.net.params.bring = partial(executor.bring, numbers[:self._n_parameters])
        for updater in self._updaters:
            updater.bring = partial(executor.bring, numbers[self._n_parameters:])
            updater.around = partial(self._around, executor)
        executor.updates = self._updates(executor)

    def parameters(self, executor: Executor) -> dict[int, Held]:
        """The parameters that may leave, by number in an executor's plan."""
        first = len(executor.parts) - len(self.held)
        return {number: each for number, each in enumerate(self.held[:self._n_parameters], first) if each.part.forward}

    def _steps_of_shards(self) -> dict[ShardUpdater, int]:
        """The step in which each shard is updated: behind backward of its run, or of all."""
        steps = self._solver.net.steps
        if not self._early:
            return {shard: steps.n_steps + number for number, shard in enumerate(self._shards)}
        left = {bucket.first_layer: iter(update_steps(self._solver.net, bucket)) for bucket in self._early}
        return {shard: next(left[run.first_layer]) for shard, run in self._shards.items()}

    def _updates(self, executor: Executor) -> dict[int, list[Callable[[], None]]]:
        """By step of backward, the last of its layer's, what is updated behind it, in this order."""
        net, steps = self._solver.net, self._solver.net.steps
        buckets, found = {bucket.first_layer: bucket for bucket in self._early}, dict[int, list[Callable[[], None]]]()
        for layer in range(steps.n_layers):
            whole = [buckets[layer]] if layer in buckets and layer not in steps.behind else []
            blocks = [(buckets[owner], pieces(net, buckets[owner])[number]) for owner, number in steps.blocks(layer)]
            if whole or blocks:
                found[steps.backward(layer)[-1]] = [*(partial(self._update, executor, bucket) for bucket in whole),
                                                    *(partial(self._update_block, *each) for each in blocks)]
        return found

    def _update(self, executor: Executor, bucket: Bucket) -> None:
        """Update a bucket, whose backward has run, before all others have. It stays in memory until the last step."""
        solver = self._solver
        for layer in layers_of(solver.net, bucket):
            solver.net.params.write_cleared_diffs(layer)
        solver.strategy.update_early(bucket, solver.rates.before(solver.iteration), solver.iteration)
        with _in_step(executor, solver.net.steps.updates(bucket.first_layer)[-1], _nothing):
            pass  # the others have the parameters

    def _update_block(self, bucket: Bucket, block: slice) -> None:
        """Update some of the rows of a layer, whose backward has run."""
        solver = self._solver
        solver.strategy.update_early(replace(bucket, place=block), solver.rates.before(solver.iteration),
                                     solver.iteration)

    def _around(self, executor: Executor, shard: ShardUpdater) -> AbstractContextManager[None]:
        """What a plan has before and behind a shard's update, if that has a step. Gradients of rows come there, too."""
        if shard not in self._steps:
            return nullcontext()
        return _in_step(executor, self._steps[shard], self._rows.get(shard, _nothing))


@contextmanager
def _in_step(executor: Executor, step: int, compute: Callable[[], None]) -> Iterator[None]:
    """Do what a plan has before a step and behind it; compute in between, before the with-block."""
    executor.before(step)
    executor.again(step)
    compute()
    yield
    executor.after(step)


def _nothing() -> None:
    pass


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
