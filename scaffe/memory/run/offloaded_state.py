"""Places for parameters, gradients and histories that may be offloaded: from host memory, and from a device's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from scaffe.layers.kernels import device
from scaffe.mapped_memory import forget, rounded
from scaffe.memory.backing.file_backed import FileBackedMemory
from scaffe.memory.problem import state as state_tensors
from scaffe.memory.problem.layer_groups import G, LayerGroup, bytes_in_pages, bytes_of
from scaffe.memory.problem.tensors import StateTensor
from scaffe.nets.flat_params import Allocate
from scaffe.nets.net import Net

Written = Callable[[G, StateTensor], StateTensor]
"""From a group and the tensor of its parameters to the tensor as it is where others write them too, such as a parameter
server."""


class StateShard(Protocol):
    """An interval of the flat buffers, and a rank's histories of it, which are updated together.

    Attributes:
        interval: in elements of the flat buffers.
        gradient_at: the element of the flat gradients where the interval's gradient begins.
    """

    interval: slice
    gradient_at: int

    @property
    def n_histories(self) -> int:
        """How many histories the update rule keeps."""

    @property
    def n_bytes(self) -> int:
        """Bytes of all its histories."""

    def move(self, allocate: Allocate) -> None:
        """Give each history new memory, and copy it there."""

    def bind(self, index: int, memory: Any) -> None:
        """Have a history in other memory that has its contents already, uint8."""


class HostState:
    """Gives state that may be offloaded places that the backing store knows: in host memory that a file backs, where
    the net's parameters were made. ``spreads_rows``: whether blocks of a layer's rows are fetched and offloaded by
    themselves: see ``compute_by_rows``."""

    spreads_rows: ClassVar[bool] = True

    def __init__(self, net: Net, backed: FileBackedMemory) -> None:
        self._net, self._backed = net, backed

    def parameters(self, groups: Sequence[G], written: Written[G]) -> tuple[list[StateTensor], int]:
        """Move the whole pages of layer groups' parameters and gradients into places of their own. Called by all ranks,
        once. Returns the tensors, and the bytes that they took before. What cannot be offloaded stays where it is."""
        state = list[StateTensor]()
        for group in groups:
            state += [written(group, each) for each in state_tensors.parameter_tensors(self._net, group)]
            if group.first_layer not in self._net.steps.behind:
                state.append(state_tensors.gradient_tensor(self._net, group))
        state += state_tensors.block_gradient_tensors(self._net, groups)
        self._backed.keep(self._net.params.data, [each.memory for each in state if each.tensor.forward])
        return state, sum(each.memory.nbytes + each.never_materialized for each in state)

    def histories(self, shard: StateShard, group: LayerGroup, step: int) -> list[StateTensor]:
        """The same of the histories of a group's shard, which is updated in ``step``."""
        pages = list[np.ndarray]()

        def in_pages_of_the_file(n_elems: int, dtype: np.dtype) -> np.ndarray:
            pages.append(self._backed.pages(rounded(n_elems * dtype.itemsize)))
            return pages[-1].view(dtype)[:n_elems]

        shard.move(in_pages_of_the_file)
        return [state_tensors.history_tensor(self._net, group, memory, step) for memory in pages]


class PinnedParameters(NamedTuple):
    """Parameters of a training net that may be offloaded from the device. ``place``: of them on the host, page-locked:
    uint8."""

    group: LayerGroup
    place: np.ndarray


class DeviceState:
    """See HostState: on a device, with page-locked places on the host. ``pinned``: the parameters that may be
    offloaded, for test nets, which read them too."""

    spreads_rows: ClassVar[bool] = False

    def __init__(self, net: Net, allocate: Allocate) -> None:
        self._net, self._allocate = net, allocate
        self.pinned: list[PinnedParameters] = []

    def parameters(self, groups: Sequence[G], written: Written[G]) -> tuple[list[StateTensor], int]:
        """See HostState: each group's get memory of their own."""
        net, params, state, taken = self._net, self._net.params, list[StateTensor](), 0
        places = {"data": [group.place for group in groups], "diff": state_tensors.gradient_places(net, groups)}
        waited = params.waits_on_host
        self.pinned = [PinnedParameters(group, pinned_copy(net, group)) for group in groups]
        data = [written(group, state_tensors.device_parameter_tensor(net, group, each.place))
                for group, each in zip(groups, self.pinned, strict=True)]
        for name, tensors in (("diff", state_tensors.device_gradient_tensors(net, groups)), ("data", data)):
            if tensors:
                params.divide(name, places[name], lambda n_elems: self._allocate(n_elems, params.dtype))
                state += tensors
                taken += sum(bytes_of(net, group) for group in groups)
            elif waited:
                params.move_one(name, self._allocate)
        if state:
            self._allocate(0, params.dtype)  # which frees what the ranks have mapped of the memory that was
        return state, taken

    def histories(self, shard: StateShard, group: LayerGroup, step: int) -> list[StateTensor]:
        """See HostState: bound to where they are."""
        tensor = state_tensors.planned_history(self._net, group, rounded(shard.n_bytes // shard.n_histories), step)
        binds = [partial(shard.bind, i) for i in range(shard.n_histories)]
        return [StateTensor(np.empty(0, np.uint8), tensor, [], bind) for bind in binds]


OffloadedState = HostState | DeviceState


def pinned_copy(net: Net, group: LayerGroup) -> np.ndarray:
    """A page-locked place on the host for a group's parameters, with their contents: uint8, ``bytes_in_pages``."""
    values = net.context.kernels.to_host(net.params.data[group.place])
    place = device.pinned(bytes_in_pages(net, group), np.uint8)
    place[:values.nbytes].view(values.dtype)[...] = values
    forget(values)  # they may have been made on the host
    return place
