"""Arrays of a device that last, between iterations: on it, or in page-locked host memory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from scaffe.layers.kernels import device
from scaffe.nets.memory.tier.below import ArrayMemory, ArrayMover
from scaffe.nets.memory.tier.pinned_places import PinnedPlaces

Bind = Callable[[Any], None]


class PinnedLasting:
    """See LastingArrays. What is shown lies on the host, and whoever reads or writes it uses it there.

    Args:
        names: of the arrays, by number.
        binds: for each, what is told where it is: an array uint8 on the device, or on the host.
        changing: those that passes change; what the host has of the others is always true.
        memory: theirs on the device.
        places: theirs on the host, which are true at first.
        renewed: further arrays, by number, whose contents nobody needs once an iteration begins.
    """

    def __init__(self, names: dict[int, str], binds: dict[int, Bind], changing: Collection[int],
                 memory: ArrayMemory, places: PinnedPlaces, renewed: Collection[int] = ()) -> None:
        self._names, self._binds, self._changing = names, binds, changing
        self._memory, self._places, self._all = memory, places, {*names, *renewed}
        self._staying = set(names)
        self._shown: set[int] = set()
        self.leave()

    def move(self, numbers: Collection[int]) -> None:
        """See LastingArrays. All must be shown."""
        self._staying = self._names.keys() - set(numbers)

    def begin(self, mover: ArrayMover) -> None:
        """See LastingArrays."""
        for number in sorted(self._shown):
            self._binds[number](self._memory.arrays[number])
            if number in self._staying:
                mover.fetch(number, self._names[number])
                mover.wait(number)
        self._shown.clear()

    def show(self, numbers: Collection[int]) -> None:
        """See LastingArrays. The host waits for the device."""
        hidden = sorted((self._all - self._shown) & set(numbers))
        for number in hidden:
            if number in self._changing and number in self._staying and self._memory.arrays:
                device.copy_to_pinned(self._memory.arrays[number], self._places[number], device.current_stream())
            self._binds[number](self._places[number])
        if hidden:
            device.current_stream().synchronize()
        self._shown.update(hidden)

    def forget(self, numbers: Collection[int]) -> None:
        """See LastingArrays: page-locked memory stays."""

    def leave(self) -> None:
        """See LastingArrays."""
        self.show(self._all)
