"""Places for parameters, gradients and histories that may be offloaded: from host memory, and from a device's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from scaffe.layers.kernels import device
from scaffe.mapped_memory import forget, rounded
from scaffe.memory.backing.file_backed import BackedMemory
from scaffe.memory.problem.layer_groups import R, Run, bytes_apart, bytes_of
from scaffe.memory.problem.state import (
    blocks_held,
    gradient_places,
    gradients_apart,
    gradients_held,
    history_held,
    history_part,
    parameters_apart,
    parameters_held,
)
from scaffe.memory.problem.tensors import Held
from scaffe.nets.flat_params import Allocate
from scaffe.nets.net import Net


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


class OffloadedState(Protocol):
    """Gives state that may be offloaded places that the backing store knows.

    Attributes:
        spreads_rows: whether blocks of a layer's rows are fetched and offloaded by themselves: see ``come_by_rows``.
    """

    spreads_rows: ClassVar[bool]

    def parameters(self, groups: Sequence[R], written: Callable[[R, Held], Held]) -> tuple[list[Held], int]:
        """Move the parameters and gradients of layer groups into places of their own. Called by all ranks, once.

        Args:
            groups: the groups, which are updated within backward.
            written: changes what a plan knows of a group's parameters where others than this rank's update write them,
                as a parameter server does.

        Returns:
            the tensors, and the bytes that they took before. What cannot be offloaded stays where it is.
        """

    def histories(self, shard: StateShard, group: Run, step: int) -> list[Held]:
        """The same of the histories of a group's shard, which is updated in ``step``."""


class HostState:
    """See OffloadedState: in host memory that a file backs, where the net's parameters were made.

    Args:
        net: the training net, before a state is restored.
        backed: the memory over that file.
    """

    spreads_rows: ClassVar[bool] = True

    def __init__(self, net: Net, backed: BackedMemory) -> None:
        self._net, self._backed = net, backed

    def parameters(self, groups: Sequence[R], written: Callable[[R, Held], Held]) -> tuple[list[Held], int]:
        """See OffloadedState: their whole pages."""
        held = list[Held]()
        for group in groups:
            held += [written(group, each) for each in parameters_held(self._net, group)]
            held += [] if group.first_layer in self._net.steps.behind else [gradients_held(self._net, group)]
        held += blocks_held(self._net, groups)
        self._backed.keep(self._net.params.data, [each.memory for each in held if each.part.forward])
        return held, sum(each.memory.nbytes + each.spared for each in held)

    def histories(self, shard: StateShard, group: Run, step: int) -> list[Held]:
        """See OffloadedState: moved into whole pages."""
        pages = list[np.ndarray]()

        def in_pages_of_the_file(n_elems: int, dtype: np.dtype) -> np.ndarray:
            pages.append(self._backed.pages(rounded(n_elems * dtype.itemsize)))
            return pages[-1].view(dtype)[:n_elems]

        shard.move(in_pages_of_the_file)
        return [history_held(self._net, group, memory, step) for memory in pages]


class PinnedParameters(NamedTuple):
    """Parameters of a training net that may be offloaded from the device.

    Attributes:
        group: whose.
        place: of them on the host, page-locked: uint8.
    """

    group: Run
    place: np.ndarray


class DeviceState:
    """See OffloadedState: on a device, with page-locked places on the host.

    Args:
        net: the training net, before a state is restored.
        allocate: device memory for a number of elements of a type.

    Attributes:
        pinned: the parameters that may be offloaded, for test nets, which read them too.
    """

    spreads_rows: ClassVar[bool] = False

    def __init__(self, net: Net, allocate: Allocate) -> None:
        self._net, self._allocate = net, allocate
        self.pinned: list[PinnedParameters] = []

    def parameters(self, groups: Sequence[R], written: Callable[[R, Held], Held]) -> tuple[list[Held], int]:
        """See OffloadedState: each group's get memory of their own."""
        net, params, held, taken = self._net, self._net.params, list[Held](), 0
        places = {"data": [group.place for group in groups], "diff": gradient_places(net, groups)}
        waited = params.waits_on_host
        self.pinned = [PinnedParameters(group, pinned_copy(net, group)) for group in groups]
        data = [written(group, parameters_apart(net, group, each.place))
                for group, each in zip(groups, self.pinned, strict=True)]
        for name, tensors in (("diff", gradients_apart(net, groups)), ("data", data)):
            if tensors:
                params.divide(name, places[name], lambda n_elems: self._allocate(n_elems, params.dtype))
                held += tensors
                taken += sum(bytes_of(net, group) for group in groups)
            elif waited:
                params.move_one(name, self._allocate)
        if held:
            self._allocate(0, params.dtype)  # which frees what the ranks have mapped of the memory that was
        return held, taken

    def histories(self, shard: StateShard, group: Run, step: int) -> list[Held]:
        """See OffloadedState: bound to where they are."""
        part = history_part(self._net, group, rounded(shard.n_bytes // shard.n_histories), step)
        return [Held(np.empty(0, np.uint8), part, [], partial(shard.bind, i)) for i in range(shard.n_histories)]


def pinned_copy(net: Net, group: Run) -> np.ndarray:
    """A page-locked place on the host for a group's parameters, with their contents: uint8, ``bytes_apart``."""
    values = net.context.kernels.to_host(net.params.data[group.place])
    place = device.pinned(bytes_apart(net, group), np.uint8)
    place[:values.nbytes].view(values.dtype)[...] = values
    forget(values)  # they may have been made on the host
    return place
