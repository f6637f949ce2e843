"""Where arrays are between iterations whose contents last from one to the next: in memory, or in the spill file."""

from __future__ import annotations

from collections.abc import Callable, Collection

from scaffe.nets.memory.mover import Mover
from scaffe.nets.memory.pages import Pages


class Lasting:
    """All arrays that last. At first they are in memory, and somebody may write there until training begins.

    Args:
        names: of the arrays, by number.
        pages: their memory.
        is_blank: says of one whether it is zero, as the file is where nothing has been written: it need not be.
    """

    def __init__(self, names: dict[int, str], pages: Pages, is_blank: Callable[[int], bool]) -> None:
        self._names, self._pages, self._is_blank = names, pages, is_blank
        self._moved: set[int] = set()  # by the plan
        self._away: set[int] = set()
        self._changed = set(names)  # in memory alone, or newer there than in the file

    def move(self, numbers: Collection[int]) -> None:
        """From the next iteration on these are away between iterations, and the others are in memory."""
        self._moved = self._names.keys() & set(numbers)

    def begin(self, mover: Mover) -> None:
        """Bring about what ``move`` said. Nothing may be on its way. Raises UserError: a move failed."""
        for number in sorted(self._moved - self._away):
            if number in self._changed and not self._is_blank(number):
                mover.save(number, self._names[number])
                mover.wait(number)
            self._pages.drop(number)
            self._away.add(number)
            self._changed.discard(number)
        for number in self._away:
            self._pages.drop(number)  # what a pass that ended early has left
        back = self._away - self._moved
        self.bring(back, mover)
        self._changed |= back

    def bring(self, numbers: Collection[int], mover: Mover) -> None:
        """Have these in memory until the next iteration begins, for reading. Raises UserError: a move failed."""
        for number in sorted(self._away & set(numbers)):
            self._pages.take(number)
            mover.fetch(number, self._names[number])
            mover.wait(number)
            self._away.discard(number)
