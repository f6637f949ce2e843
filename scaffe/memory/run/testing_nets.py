"""Test nets within limited memory: on the host they fetch parameters sequentially, on a device they share the training
net's memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.kernels import device
from scaffe.memory.backing.pinned import PinnedStore
from scaffe.memory.plan.layout import least_together
from scaffe.memory.problem.costs import Speed, estimated_seconds
from scaffe.memory.problem.iteration import Tensor
from scaffe.memory.problem.layer_groups import LayerGroup, bytes_in_pages
from scaffe.memory.problem.tensors import StateTensor, forward_group, iteration_of
from scaffe.memory.run.limited_net import Limit, LimitedNet
from scaffe.memory.run.offloaded_state import PinnedParameters
from scaffe.nets.flat_params import copy_into
from scaffe.nets.net import Net, Tier


class SequentialFetch(Tier):
    """See Tier. A test net on the host whose parameters do not all fit in memory reads them from the spill file, layer
    by layer, and releases each behind the last layer that reads it.

    Args:
        test: the test net, after ``share_trained_layers``.
        state: the training net's parameters that may be offloaded, by number in its plan.

    Attributes:
        most_bytes: the most bytes of them that a step reads at once.
    """

    def __init__(self, test: Net, trained: Net, state: Mapping[int, StateTensor], fetch: Callable[[], None],
                 release: Callable[[Collection[int]], None]) -> None:
        self._fetch, self._release, self._state = fetch, release, state.keys()
        reads = _reads(test, trained, state)
        self.most_bytes = max(sum(state[number].memory.nbytes for number in numbers) for numbers in reads)
        self._done = [numbers - following for numbers, following in zip(reads, [*reads[1:], set()], strict=True)]

    def before(self, step: int) -> None:
        if step == 0:
            self._fetch()
            self._release(self._state)  # what has been written there

    def after(self, step: int) -> None:
        self._release(self._done[step])


def _reads(test: Net, trained: Net, state: Mapping[int, StateTensor]) -> list[set[int]]:
    numbers: dict[int, set[int]] = {}
    for number, each in state.items():
        for blob in (blob for layer in each.layers for blob in trained.nodes[layer].layer.blobs):
            numbers.setdefault(id(blob), set()).add(number)
    sources = test.trained_blobs(trained)
    found = [set().union(*(numbers.get(id(sources.get(id(blob))), ()) for blob in node.layer.blobs))
             for node in test.nodes]
    return [set().union(*(found[i] for i in forward_group(test, step))) for step in range(len(test.nodes))]


class _Use(NamedTuple):
    """A test net's blob whose data are parameters of a group, from element ``start`` of the group on."""

    layer: int
    blob: Blob
    start: int


class ArenaSharingNet:
    """What a test net on a device reads of parameters that may be offloaded, and when."""

    def __init__(self, test: Net, trained: Net, pinned: Sequence[PinnedParameters]) -> None:
        self._net = test
        uses = [(each, _uses(test, trained, each.group)) for each in pinned]
        self._state = [_state(test, trained, each, found) for each, found in uses if found]
        seconds = estimated_seconds(test, Speed(*device.speeds()), backward=False)
        self._iteration = iteration_of(test, [], self._state, seconds)

    def least_bytes(self) -> int:
        return least_together(self._iteration)

    def limit(self, text: str, store: PinnedStore) -> LimitedNet:
        """Have the net fetch its parameters into the memory in which training computes. ``store``: training's, which
        has its memory; at least ``least_bytes`` of it."""
        memory = store.whole()
        limit = Limit(text, memory.nbytes, 0, "move")
        return LimitedNet(self._net, [], self._state, self._iteration, limit,
                          PinnedStore(lambda n_bytes: memory, memory.nbytes))


def _state(test: Net, trained: Net, each: PinnedParameters, uses: Collection[_Use]) -> StateTensor:
    steps = {step for use in uses for step in forward_group(test, use.layer)}
    name = f"{trained.nodes[each.group.first_layer].name} parameters"
    tensor = Tensor(name, bytes_in_pages(trained, each.group), tuple(sorted(steps)), is_persistent=True)
    return StateTensor(each.place, tensor, sorted({use.layer for use in uses}), partial(_bind, uses))


def _bind(uses: Collection[_Use], memory: Any) -> None:
    for _, blob, start in uses:
        first = start * blob.dtype.itemsize
        blob.change_memory(memory[first:first + blob.n_elems * blob.dtype.itemsize].view(blob.dtype))


def _uses(test: Net, trained: Net, group: LayerGroup) -> list[_Use]:
    starts = {id(param.blob): place.start - group.place.start
              for param, place in zip(trained.params.params, trained.params.slices, strict=True)
              if group.place.start <= place.start < group.place.stop}
    sources = test.trained_blobs(trained)
    return [_Use(index, blob, starts[id(sources[id(blob)])]) for index, node in enumerate(test.nodes)
            for blob in node.layer.blobs if id(sources.get(id(blob))) in starts]


def place_own_parameters(test: Net, trained: Net) -> None:
    """Put a test net's parameters on the device: those of the training net, which lie there, and its own."""
    for blob in test.own_blobs:
        if isinstance(blob.data_flat, np.ndarray):  # made on the host
            memory = test.context.kernels.zeros(blob.n_elems, blob.dtype)
            copy_into(memory, blob.data_flat)
            blob.bind_data(memory)
    test.share_trained_layers(trained)
