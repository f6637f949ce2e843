"""Host memory with a spill file below it."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.nets.memory.host_clock import HostClock
from scaffe.nets.memory.parts import Held
from scaffe.nets.memory.plans.fitting import fitted
from scaffe.nets.memory.plans.iteration import Bandwidth, Iteration
from scaffe.nets.memory.plans.layout import Layout
from scaffe.nets.memory.plans.needs import least_bytes
from scaffe.nets.memory.plans.placements import Placement
from scaffe.nets.memory.plans.plan import Plan
from scaffe.nets.memory.tier.backed import BackedMemory
from scaffe.nets.memory.tier.below import ArrayMemory
from scaffe.nets.memory.tier.disk_speed import disk_speed
from scaffe.nets.memory.tier.lasting import Lasting
from scaffe.nets.memory.tier.mover import Mover
from scaffe.nets.memory.tier.pages import Pages


class Spill:
    """See Below.

    Args:
        backed: the spill file, and what lies in it already.
    """

    def __init__(self, backed: BackedMemory) -> None:
        self._backed = backed

    def bandwidth(self) -> Bandwidth:
        """See Below: of the file's disk."""
        return disk_speed(self._backed.file)

    def memory(self, lengths: Sequence[int], held: Sequence[Held]) -> Pages:
        """See Below."""
        pages = Pages(lengths)
        for each in held:
            pages.adopt(each.memory)
        return pages

    def mover(self, memory: ArrayMemory) -> Mover:
        """See Below."""
        return Mover(memory, self._backed)

    def lasting(self, names: dict[int, str], memory: ArrayMemory, held: Sequence[Held]) -> Lasting:
        """See Below."""
        first = len(memory.arrays) - len(held)
        return Lasting(names, memory, self._backed, [i for i, each in enumerate(held, first) if each.is_renewed])

    def clock(self) -> HostClock:
        """See Below."""
        return HostClock()

    def fitted(self, iteration: Iteration, place: Placement, n_bytes: int, bandwidth: Bandwidth,
               n_blobs: int) -> tuple[Plan, Layout]:
        """See Below: blobs lie in one memory where that fits, and everything else has its own pages."""
        return fitted(iteration, place, n_bytes, bandwidth, n_blobs)

    def least_bytes(self, iteration: Iteration) -> int:
        """See Below."""
        return least_bytes(iteration)
