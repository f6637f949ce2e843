"""A file's beginning at addresses of this process: as many as what is made takes, whatever the disk has free."""

from __future__ import annotations

import numpy as np

from scaffe import lost_pages
from scaffe.errors import UserError
from scaffe.nets.memory.tier.mapping import HUGE_BYTES, address, dismiss, make_file, reserved
from scaffe.nets.memory.tier.spill_file import SpillFile

LEAST_BYTES = 64 << 20  # of a window
SHARE = 4  # a window is at least this part of all that was made before, so that there are few


class Windows:
    """Pieces of the file, each at addresses in one piece; what does not fit behind the last one gets a new one. Two may
    show the same part of the file: they then show the same pages.

    Args:
        file: what is shown; parts behind its end may not be touched.
        rank: says a line where a page is lost; below 0: the only one.
    """

    def __init__(self, file: SpillFile, rank: int) -> None:
        self._file, self._rank = file, rank
        self._windows: list[tuple[int, np.ndarray]] = []  # where each begins in the file, and its memory

    def part(self, start: int, n_bytes: int) -> np.ndarray:
        """The file's bytes from ``start`` on, uint8, in one piece. Raises UserError: no addresses are left."""
        for begin, memory in reversed(self._windows):
            end = begin + memory.nbytes
            if begin <= start < end and start + n_bytes <= end:  # an empty part has an address too
                found: np.ndarray = memory[start - begin:start - begin + n_bytes]
                return found
        begin = start // HUGE_BYTES * HUGE_BYTES
        self._windows.append((begin, self._new(begin, start + n_bytes)))
        return self.part(start, n_bytes)

    def of(self, array: np.ndarray) -> tuple[int, np.ndarray]:
        """The window that has an array: its place in the file, in bytes, and its memory. Raises ValueError: none."""
        for begin, memory in self._windows:
            if 0 <= address(array) - address(memory) < memory.nbytes:
                return begin, memory
        raise ValueError("expected an array within a window of the file")

    def offset(self, array: np.ndarray) -> int:
        """An array's place in the file, in bytes."""
        begin, memory = self.of(array)
        return begin + address(array) - address(memory)

    def leave_memory(self, end: int) -> None:
        """Give the pages before a place in the file back, which the file has. Raises OSError."""
        for begin, memory in self._windows:
            dismiss(address(memory), max(min(end - begin, memory.nbytes), 0))

    def forget_before(self, array: np.ndarray) -> None:
        """Give up the windows before an array's: their addresses go with the last array there."""
        first = next(i for i, (_, memory) in enumerate(self._windows) if memory is self.of(array)[1])
        del self._windows[:first]

    def _new(self, begin: int, end: int) -> np.ndarray:
        least = -(-(end - begin) // HUGE_BYTES) * HUGE_BYTES
        try:
            memory = reserved(max(least, LEAST_BYTES, begin // SHARE // HUGE_BYTES * HUGE_BYTES))
        except UserError:
            memory = reserved(least)
        make_file(memory, self._file.descriptor, begin)
        lost_pages.watch(memory, f"folder {self._file.folder}", self._rank)
        return memory
