"""A device's memory with page-locked host memory below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scaffe.nets.memory.parts import Held
from scaffe.nets.memory.plans.iteration import Bandwidth, Iteration
from scaffe.nets.memory.plans.layout import Layout
from scaffe.nets.memory.plans.placements import Placement
from scaffe.nets.memory.plans.plan import Plan
from scaffe.nets.memory.plans.together import fitted_together, least_together
from scaffe.nets.memory.tier.below import ArrayMemory
from scaffe.nets.memory.tier.device_arena import DeviceArena
from scaffe.nets.memory.tier.device_clock import DeviceClock
from scaffe.nets.memory.tier.device_mover import DeviceMover
from scaffe.nets.memory.tier.link_speed import link_speed
from scaffe.nets.memory.tier.pinned_lasting import PinnedLasting
from scaffe.nets.memory.tier.pinned_places import PinnedPlaces


class Pinned:
    """See Below. All arrays of a plan lie in one piece of the device's memory.

    Args:
        allocate: n_bytes → uint8, on the device.
        n_bytes: of that piece.
    """

    def __init__(self, allocate: Callable[[int], Any], n_bytes: int) -> None:
        self._allocate, self._n_bytes = allocate, n_bytes
        self._memory: Any = None
        self._places: PinnedPlaces | None = None

    def bandwidth(self) -> Bandwidth:
        """See Below: of the link between device and host."""
        return link_speed(self.whole())

    def memory(self, lengths: Sequence[int], held: Sequence[Held]) -> DeviceArena:
        """See Below."""
        everything = [*lengths, *(each.part.n_bytes for each in held)]
        lasting = {number: each.memory for number, each in enumerate(held, len(lengths))
                   if each.part.lasts or each.is_renewed}
        self._places = PinnedPlaces(everything, lasting)
        return DeviceArena(self.whole(), everything)

    def mover(self, memory: ArrayMemory) -> DeviceMover:
        """See Below. Behind ``memory``."""
        return DeviceMover(memory, self._host())

    def lasting(self, names: dict[int, str], memory: ArrayMemory, held: Sequence[Held]) -> PinnedLasting:
        """See Below. Behind ``memory``."""
        first = len(self._host().lengths) - len(held)
        binds = {first + i: each.bind for i, each in enumerate(held)}
        changing = {first + i for i, each in enumerate(held) if each.part.changes}
        renewed = [first + i for i, each in enumerate(held) if each.is_renewed]
        return PinnedLasting(names, binds, changing, memory, self._host(), renewed)

    def clock(self) -> DeviceClock:
        """See Below."""
        return DeviceClock()

    def fitted(self, iteration: Iteration, place: Placement, n_bytes: int, bandwidth: Bandwidth,
               n_blobs: int) -> tuple[Plan, Layout]:
        """See Below."""
        return fitted_together(iteration, place, n_bytes, bandwidth)

    def least_bytes(self, iteration: Iteration) -> int:
        """See Below."""
        return least_together(iteration)

    def whole(self) -> Any:
        """All of it, uint8."""
        if self._memory is None:
            self._memory = self._allocate(self._n_bytes)
        return self._memory

    def _host(self) -> PinnedPlaces:
        if self._places is None:
            raise RuntimeError("a device's arrays have no memory yet")
        return self._places
