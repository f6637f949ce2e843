"""State of large layer groups that is updated chunk by chunk, so that a memory plan may offload it.

Where it is allowed, a group of layers is summed over the ranks and updated as soon as its gradient is there (GeePS's
clock of a layer), and parameters, gradients and histories may all be offloaded. Otherwise the gradients of all layers
are needed before the first is updated, and only histories are offloaded: they pass through memory one after another
during the update.

Gradients of large layers may be computed and updated block by block of rows, so that no gradient is ever there whole.
Updates within backward, each as soon as its gradient is there, are known for whole parameters (Lv et al., "Full
Parameter Fine-tuning for Large Language Models with Limited Resources", ACL 2024); here a parameter comes in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Generic

import numpy as np

from scaffe.memory.problem.costs import BYTES_A_SECOND
from scaffe.memory.problem.layer_groups import (
    G,
    LayerGroup,
    blocks_place,
    chunks,
    count_updates,
    layers_of,
    update_steps,
)
from scaffe.memory.problem.tensors import StateTensor
from scaffe.memory.run.executor import Executor
from scaffe.memory.run.offloaded_state import OffloadedState, StateShard, Written
from scaffe.nets.net import Net


class ChunkedState(Generic[G]):
    """The state that a plan may offload: its tensors, and the steps in which they are updated.

    Args:
        net: the training net, before a state is restored. Its ``steps`` get those of the updates.
        shards: the chunks of state that are updated one after another, ascending, each with its layer group.
        eager: the groups that are updated within backward; their parameters may be offloaded too.

    Attributes:
        tensors: those of parameters and gradients first, then histories.
    """

    def __init__(self, net: Net, offloaded: OffloadedState, shards: Mapping[StateShard, LayerGroup], eager: Sequence[G],
                 written: Written[G]) -> None:
        self._net, self._shards, self._eager = net, shards, eager
        self.n_updates = 0 if eager else len(shards)
        groups = [group.first_layer for group in shards.values()]
        count_updates(net, {group.first_layer: groups.count(group.first_layer) for group in eager})
        self._steps = self._steps_of_shards()
        self._rows = row_gradients(net, shards)
        self.tensors, self._taken_bytes = offloaded.parameters(eager, written)
        self._n_parameters = len(self.tensors)
        for shard, group in shards.items():
            self.tensors += offloaded.histories(shard, group, self._steps[shard])

    def _steps_of_shards(self) -> dict[StateShard, int]:
        """The step in which each shard is updated: behind backward of its group, or of all."""
        steps = self._net.steps
        if not self._eager:
            return {shard: steps.n_steps + number for number, shard in enumerate(self._shards)}
        left = {group.first_layer: iter(update_steps(self._net, group)) for group in self._eager}
        return {shard: next(left[group.first_layer]) for shard, group in self._shards.items()}

    @property
    def parameter_bytes(self) -> int:
        return sum(each.tensor.n_bytes for each in self.tensors[:self._n_parameters] if each.tensor.forward)

    @property
    def taken_bytes(self) -> int:
        """Bytes of all tensors that may be offloaded, as far as they are parts of parameters, gradients and
        histories."""
        return self._taken_bytes + sum(shard.n_bytes for shard in self._shards)

    def seconds(self, passes: Sequence[float], bytes_a_second: float = BYTES_A_SECOND) -> tuple[float, ...]:
        """Seconds of all steps, from those of the passes: updates are estimated by the bytes that they read and
        write."""
        found = [*passes, *[0.0] * self.n_updates]
        for shard, step in self._steps.items():
            found[step] += 3 * shard.n_bytes / bytes_a_second
        return tuple(found)

    def numbers(self, executor: Executor) -> tuple[range, range]:
        first = len(executor.tensors) - len(self.tensors)
        histories = first + self._n_parameters
        return range(first, histories), range(histories, len(executor.tensors))

    def parameters(self, executor: Executor) -> dict[int, StateTensor]:
        return {number: each for number, each in zip(self.numbers(executor)[0], self.tensors, strict=False)
                if each.tensor.forward}

    def updates(self, executor: Executor, update: Callable[[G, slice], None]) -> dict[int, list[Callable[[], None]]]:
        """What is updated behind each step of backward, in this order: for ``Executor.updates``. ``update``: updates a
        chunk of a group, an interval of the flat buffers, before other layers' backward has run."""
        net, steps = self._net, self._net.steps
        groups, found = {group.first_layer: group for group in self._eager}, dict[int, list[Callable[[], None]]]()
        for layer in range(steps.n_layers):
            whole = [groups[layer]] if layer in groups and layer not in steps.behind else []
            blocks = [(groups[owner], chunks(net, groups[owner])[number]) for owner, number in steps.blocks(layer)]
            if whole or blocks:
                found[steps.backward(layer)[-1]] = [
                    *(partial(self._update_group, executor, update, group) for group in whole),
                    *(partial(update, *each) for each in blocks)]
        return found

    def _update_group(self, executor: Executor, update: Callable[[G, slice], None], group: G) -> None:
        """Update a whole group. It stays in memory until the last of its steps, in which the others get it."""
        for layer in layers_of(self._net, group):
            self._net.params.write_cleared_diffs(layer)
        update(group, group.place)
        with in_step(executor, self._net.steps.updates(group.first_layer)[-1]):
            pass  # the others have the parameters

    @contextmanager
    def around(self, executor: Executor, shard: StateShard) -> Iterator[None]:
        """Do what a plan has before and behind a shard's update, if that has a step of its own. Gradients of rows are
        computed there, too."""
        if shard not in self._steps:
            yield
            return
        with in_step(executor, self._steps[shard]):
            if shard in self._rows:
                self._rows[shard]()
            yield


@contextmanager
def in_step(executor: Executor, step: int) -> Iterator[None]:
    """Do what a plan has before a step and behind it."""
    executor.before(step)
    executor.recompute(step)
    yield
    executor.after(step)


def row_gradients(net: Net, shards: Mapping[StateShard, LayerGroup]) -> dict[StateShard, Callable[[], None]]:
    """What computes the gradient of each shard of those layers whose gradients come by blocks of rows. All blocks are
    computed in one place of the flat gradients, one after another. ``shards``: those that are updated behind backward,
    ascending, with the group that each belongs to."""
    found: dict[StateShard, Callable[[], None]] = {}
    groups = {group.first_layer: group for group in shards.values() if group.first_layer in net.steps.behind}
    start = blocks_place(net, groups.values()).start if groups else 0
    for layer in groups:
        node, own = net.nodes[layer], [shard for shard, group in shards.items() if group.first_layer == layer]
        for blob in node.layer.blobs:
            blob.bind_diff(None)  # nobody has all of it
        for shard, rows in zip(own, node.layer.param_rows, strict=True):
            shard.gradient_at = start
            found[shard] = partial(_compute_rows, net, layer, rows, shard)
    return found


def _compute_rows(net: Net, layer: int, rows: slice, shard: StateShard) -> None:
    net.nodes[layer].backward_rows(rows, _diffs(net, layer, shard))


def _diffs(net: Net, layer: int, shard: StateShard) -> list[np.ndarray]:
    """Where the gradient of each of a layer's parameters, or of a shard's part of it, is written."""
    found, ahead = [], shard.gradient_at - shard.interval.start
    for param, place in zip(net.params.params, net.params.slices, strict=True):
        start, stop = max(place.start, shard.interval.start), min(place.stop, shard.interval.stop)
        if param.layer_index == layer and start < stop:
            found.append(net.params.diff[start + ahead:stop + ahead])
    return found
