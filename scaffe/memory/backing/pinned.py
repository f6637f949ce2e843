"""Page-locked host memory below a device's: tensors are offloaded over the link."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.kernels import device
from scaffe.layers.kernels.device_pages import DevicePages, least_page_bytes
from scaffe.log import info
from scaffe.memory.backing.device_clock import DeviceClock
from scaffe.memory.backing.device_lanes import CopyLane, DeviceArena, PinnedPlaces
from scaffe.memory.backing.speeds import link_speed
from scaffe.memory.backing.store import BACK, OUT, WAITS, ArrayMemory, ArrayMover, Opened, PersistentTensors, Record
from scaffe.memory.plan.layout import Lay, Layout, fitted_together, in_one_piece, least_together
from scaffe.memory.plan.paging import Paging, laid_out
from scaffe.memory.plan.placements import Placement
from scaffe.memory.plan.plan import Plan
from scaffe.memory.problem.iteration import Bandwidth, Iteration
from scaffe.memory.problem.tensors import StateTensor
from scaffe.nets.net import Net


class DeviceMover:
    """See ArrayMover. The stream that computes (the current one) and those of copies wait for each other by events:

    - a copy begins behind all that was queued for computing when it was asked for: behind the last use of its tensor,
      or of the tensors whose memory it writes;
    - ``wait`` has computing go on behind a tensor's last copy: its contents have arrived, or its memory is free. So a
      copy into memory that another tensor has left, or one back of what was copied out, comes behind the copy out if it
      is asked for behind the wait for that, as plans have it;
    - copies one way run one after another, and at the same time as those the other way, since links carry both at once.

    Attributes:
        offloaded, fetched: bytes of the copies that were queued so far.
    """

    holds_host: ClassVar[bool] = False

    def __init__(self, memory: ArrayMemory, places: PinnedPlaces) -> None:
        self._memory, self._places = memory, places
        self._out, self._back = CopyLane(device.stream()), CopyLane(device.stream())
        self._reached = _event()
        self._done: dict[int, Any] = {}  # by array: behind its last copy
        self._open: dict[int, str] = {}  # names of the arrays whose last copy nobody has waited for
        self._waits: CopyLane | None = None  # on the stream that computes, once somebody records
        self.record: Record | None = None
        self.offloaded = self.fetched = 0

    def place(self, numbers: Collection[int]) -> None:
        self._places.move(numbers)

    def offload(self, number: int, name: str) -> None:
        self._queue(self._out, device.copy_to_pinned, number, "save", name)
        self.offloaded += self._memory.arrays[number].nbytes

    def fetch(self, number: int, name: str) -> None:
        self._queue(self._back, device.copy_from_pinned, number, "fetch", name)
        self.fetched += self._memory.arrays[number].nbytes

    def wait(self, number: int) -> None:
        """See ArrayMover: the host does not wait. Raises KeyError: no copy was queued for the array."""
        name = self._open.pop(number)
        if self.record is not None:
            self._waits = self._waits or CopyLane(device.current_stream())
            self._waits.begin(f"wait {name}")
        device.current_stream().wait_event(self._done[number])
        if self.record is not None and self._waits is not None:
            self._waits.end()

    def wait_all(self) -> None:
        for number in list(self._open):
            self.wait(number)
        for name, lane in ((OUT, self._out), (BACK, self._back), (WAITS, self._waits)):
            if self.record is not None and lane is not None:
                lane.report(partial(self.record, name))

    def bandwidth(self) -> Bandwidth | None:
        return None

    def close(self) -> None:
        for lane in (self._out, self._back):
            lane.stream.synchronize()

    def _queue(self, lane: CopyLane, copy: Any, number: int, what: str, name: str) -> None:
        self._reached.record(device.current_stream())
        lane.stream.wait_event(self._reached)
        if self.record is not None:
            lane.begin(f"{what} {name}")
        copy(self._memory.arrays[number], self._places[number], lane.stream)
        if self.record is not None:
            lane.end()
        if number not in self._done:
            self._done[number] = _event()
        self._done[number].record(lane.stream)
        self._open[number] = name


def _event() -> Any:
    return device.load().cuda.Event(disable_timing=True)


Bind = Callable[[Any], None]


class PinnedPersistentTensors(PersistentTensors):
    """See PersistentTensors. What is shown lies on the host, and whoever reads or writes it uses it there.

    Args:
        binds: for each, what is called with its place: an array, uint8, on the device or on the host.
        changing: those that passes change; the host's copy of the others is always valid.
        places: theirs on the host, which are valid at first.
        refreshed: further tensors, by number, whose contents nobody needs once an iteration begins.
    """

    def __init__(self, names: dict[int, str], binds: dict[int, Bind], changing: Collection[int],
                 memory: ArrayMemory, places: PinnedPlaces, refreshed: Collection[int] = ()) -> None:
        self._names, self._binds, self._changing = names, binds, changing
        self._memory, self._places, self._all = memory, places, {*names, *refreshed}
        self._staying = set(names)
        self._shown: set[int] = set()
        self.show_all()

    def move(self, numbers: Collection[int]) -> None:
        """See PersistentTensors. All must be shown."""
        self._staying = self._names.keys() - set(numbers)

    def begin(self, mover: ArrayMover) -> None:
        for number in sorted(self._shown):
            self._binds[number](self._memory.arrays[number])
            if number in self._staying:
                mover.fetch(number, self._names[number])
                mover.wait(number)
        self._shown.clear()

    def show(self, numbers: Collection[int]) -> None:
        """See PersistentTensors. The host waits for the device."""
        hidden = sorted((self._all - self._shown) & set(numbers))
        for number in hidden:
            if number in self._changing and number in self._staying and self._memory.arrays:
                device.copy_to_pinned(self._memory.arrays[number], self._places[number], device.current_stream())
            self._binds[number](self._places[number])
        if hidden:
            device.current_stream().synchronize()
        self._shown.update(hidden)

    def show_all(self) -> None:
        self.show(self._all)


class PinnedStore:
    """See BackingStore. All tensors of a plan lie in one piece of the device's memory, or in its pages.

    Args:
        allocate: of the memory, if it does not consist of pages: n_bytes → uint8.
        lay: how tensors are laid out in it.
    """

    def __init__(self, allocate: Callable[[int], Any], n_bytes: int, lay: Lay = in_one_piece) -> None:
        self._allocate, self._n_bytes, self._lay = allocate, n_bytes, lay
        self._memory: Any = None
        self._pages: DevicePages | None = None

    def least_bytes(self, iteration: Iteration) -> int:
        return least_together(iteration, self._lay)

    def bandwidth(self) -> Bandwidth:
        return link_speed(self.whole())

    def open(self, lengths: Sequence[int], state: Sequence[StateTensor], names: dict[int, str]) -> Opened:
        everything, first = [*lengths, *(each.tensor.n_bytes for each in state)], len(lengths)
        refreshed = [number for number, each in enumerate(state, first) if each.is_refreshed]
        places = PinnedPlaces(everything, {number: each.memory for number, each in enumerate(state, first)
                                           if each.tensor.is_persistent or each.is_refreshed})
        memory = DeviceArena(self.whole(), everything, self._pages)
        persistent = PinnedPersistentTensors(
            names, {number: each.bind for number, each in enumerate(state, first)},
            {number for number, each in enumerate(state, first) if each.tensor.changes}, memory, places, refreshed)
        return Opened(memory, DeviceMover(memory, places), persistent, DeviceClock())

    def fitted(self, iteration: Iteration, place: Placement, n_bytes: int, bandwidth: Bandwidth,
               n_blobs: int) -> tuple[Plan, Layout]:
        self.whole()
        return fitted_together(iteration, place, n_bytes, bandwidth, self._lay)

    def whole(self) -> Any:
        """All of it in one piece. Where the driver refuses pages, tensors lie in one piece from now on."""
        if self._memory is None and isinstance(self._lay, Paging):
            try:
                n_pages = self._n_bytes // self._lay.page_bytes
                self._pages = DevicePages(n_pages, self._lay.page_bytes)
                self._memory = self._pages.mapped(range(n_pages))
            except LayerError as error:
                info(f"Memory: arrays lie in one piece, since the device gives no pages: {error}")
                self._lay, self._pages = in_one_piece, None
        if self._memory is None:
            self._memory = self._allocate(self._n_bytes)
        return self._memory


def pinned_store(net: Net, iteration: Iteration, n_bytes: int, n_blobs: int, alone: bool = True) -> PinnedStore:
    """Page-locked host memory below the device of a net, whose tensors may have so many bytes there.

    Args:
        n_blobs: so many tensors, the first, are activations and their gradients.
        alone: whether no other rank gets any tensor: messages from memory in pages may be slow, or refused.
    """
    lay = laid_out(iteration, least_page_bytes() if alone else 0, n_blobs)
    page = lay.page_bytes if isinstance(lay, Paging) else 1
    most = sum(-(-part.n_bytes // page) * page for part in iteration.tensors)
    return PinnedStore(lambda length: net.context.kernels.zeros(length, np.dtype(np.uint8)), min(n_bytes, most), lay)
