"""A solver's state as a memory plan may offload it, and its updates in the steps of the plan (``-memory``).

This stays in training, since it is what the solver's strategy and update rule have to do for ``memory.run``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from scaffe.memory.problem.layer_groups import LayerGroup, chunks, compute_by_rows, large_groups, single_layers
from scaffe.memory.problem.state import refreshed
from scaffe.memory.problem.tensors import StateTensor
from scaffe.memory.run.chunked_updates import ChunkedState
from scaffe.memory.run.executor import Executor
from scaffe.memory.run.offloaded_state import OffloadedState, StateShard
from scaffe.training.learning_rate import Plateau
from scaffe.training.solver import Solver
from scaffe.training.strategies.base import Strategy
from scaffe.training.strategies.transfers import Bucket
from scaffe.training.updater import Updater


def chunked_state(solver: Solver, offloaded: OffloadedState, may_be_eager: bool = True,
                  recomputes: bool = True) -> ChunkedState[Bucket]:
    """What of a solver's state a plan may offload. Called by all ranks, or by none.

    Args:
        solver: built, not yet restored. Its updaters get a shard for each chunk of a large group of layers.
        may_be_eager: whether groups may be updated as soon as their gradients are there.
        recomputes: whether parameters that the strategy refreshes in each iteration may be read from it once more.
    """
    net, strategy = solver.net, solver.strategy
    needs_all = solver.param.clip_gradients >= 0 or solver.updater.keeps_step or isinstance(solver.rates, Plateau)
    eager = large_groups(net, strategy.eager.buckets()) if may_be_eager and not needs_all else []
    groups: Sequence[LayerGroup] = eager or large_groups(net, single_layers(net))
    strategy.eager.take(eager)
    compute_by_rows(net, eager if strategy.eager.updates_alone else (), offloaded.spreads_rows)
    edges = sorted({edge for group in groups for chunk in chunks(net, group) for edge in (chunk.start, chunk.stop)})
    solver.updater.own(cut(strategy.state.owned(), edges), cut(strategy.state.copied(), edges))
    for own in strategy.eager.own_updaters:
        own.own(cut([shard.interval for shard in own.shards], edges))
    shards: dict[StateShard, LayerGroup] = {
        shard: group for updater in _updaters(solver) for shard in updater.everything for group in groups
        if group.place.start <= shard.interval.start < group.place.stop and shard.n_bytes}
    return ChunkedState(net, offloaded, shards, eager, partial(_written, strategy, recomputes))


def attach(solver: Solver, state: ChunkedState[Bucket], executor: Executor) -> None:
    """Have a solver's layers updated within an executor's steps, and tensors fetched for those who read them whole."""
    parameters, histories = state.numbers(executor)
    solver.net.params.fetch_all = partial(executor.fetch, parameters)
    for updater in _updaters(solver):
        updater.fetch_all = partial(executor.fetch, histories)
        updater.around = partial(state.around, executor)
    executor.updates = state.updates(executor, partial(_update, solver))


def cut(intervals: Sequence[slice], edges: Sequence[int]) -> list[slice]:
    """The intervals, each divided where an edge lies within it."""
    found = []
    for whole in intervals:
        inner = [whole.start, *(edge for edge in edges if whole.start < edge < whole.stop), whole.stop]
        found += [slice(start, stop) for start, stop in zip(inner, inner[1:], strict=False)]
    return found


def _updaters(solver: Solver) -> list[Updater]:
    """Those whose histories may be offloaded, in the order in which they update."""
    return [*solver.strategy.eager.own_updaters, solver.updater]


def _written(strategy: Strategy, recomputes: bool, bucket: Bucket, parameters: StateTensor) -> StateTensor:
    """A bucket's parameters as a plan knows them: a server may write them too."""
    if strategy.eager.refreshes_parameters:
        return refreshed(parameters, strategy.eager.refresher(bucket) if recomputes else None)
    return replace(parameters, tensor=replace(
        parameters.tensor, changes_in_forward=strategy.eager.may_refresh_parameters))


def _update(solver: Solver, bucket: Bucket, place: slice) -> None:
    rate = solver.rates.before(solver.iteration)
    solver.strategy.eager.update_in_backward(replace(bucket, place=place), rate, solver.iteration)
