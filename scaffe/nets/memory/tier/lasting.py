"""Where arrays are between iterations whose contents last from one to the next: in memory, or in the spill file."""

from __future__ import annotations

from collections.abc import Collection

from scaffe.nets.memory.tier.backed import BackedMemory
from scaffe.nets.memory.tier.below import ArrayMemory, ArrayMover
from scaffe.nets.memory.tier.mapping import address, dismiss


class Lasting:
    """All arrays that last. Before the first iteration, and whenever somebody wants to read them whole, those that are
    in the file are shown from there: their addresses are the file's pages, which need not fit in memory.

    Args:
        names: of the arrays, by number.
        pages: their memory.
        backed: where that lies.
        renewed: further arrays that lie there, by number, whose contents nobody needs once an iteration begins.
    """

    def __init__(self, names: dict[int, str], pages: ArrayMemory, backed: BackedMemory,
                 renewed: Collection[int] = ()) -> None:
        self._names, self._pages, self._backed, self._renewed = names, pages, backed, set(renewed)
        self._moved: set[int] = set()  # by the plan
        self._away, self._shown = set(names), {*names, *renewed}

    def move(self, numbers: Collection[int]) -> None:
        """From the next iteration on these are away between iterations, and the others are in memory."""
        self._moved = self._names.keys() & set(numbers)

    def begin(self, mover: ArrayMover) -> None:
        """Bring about what ``move`` said. Nothing may be on its way. Raises UserError: a move failed, or what was shown
        has not been written."""
        if self._shown:
            self._backed.file.check()
        for number in self._shown:
            self._backed.hide(self._pages.arrays[number])
        self._shown.clear()
        for number in sorted(self._moved - self._away):
            mover.save(number, self._names[number])
            mover.wait(number)
            self._away.add(number)
        for number in self._away:
            self._pages.drop(number)  # also what a pass that ended early has left
        for number in sorted(self._away - self._moved):
            self._pages.take(number)
            mover.fetch(number, self._names[number])
            mover.wait(number)
            self._away.discard(number)

    def show(self, numbers: Collection[int]) -> None:
        """Have these where they can be read, and written, until the next iteration begins. No pages may wait. Raises
        UserError: the disk has not written what it was shown before."""
        self._backed.file.check()
        for number in ((self._away | self._renewed) - self._shown) & set(numbers):
            self._backed.show(self._pages.arrays[number])
            self._shown.add(number)

    def forget(self, numbers: Collection[int]) -> None:
        """See LastingArrays: the file has them. Raises OSError."""
        for number in self._shown & set(numbers):
            array = self._pages.arrays[number]
            dismiss(address(array), array.nbytes)

    def leave(self) -> None:
        """See LastingArrays: their addresses stay."""
