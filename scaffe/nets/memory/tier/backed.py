"""Memory of parameters and histories that a spill file backs: they can be made without ever being there whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from scaffe import lost_pages
from scaffe.nets.memory.tier.mapping import (
    HUGE_BYTES,
    PAGE_BYTES,
    address,
    dismiss,
    make_file,
    make_private,
    reserved,
)
from scaffe.nets.memory.tier.spill_file import CHUNK_BYTES, SpillFile

ALIGN_ELEMS = 16  # as in the flat buffers, so that parameters that are made in turn lie as they do there


class BackedMemory:
    """Addresses that show a file, each its own place there, or private pages.

    What is made here lies in the file at first, whose pages the system takes out of memory as it needs them. A memory
    plan hides it, moves it into private pages and back by itself, and shows it to whoever wants to read it whole.

    Args:
        file: its beginning is used, as far as ``n_bytes``. A disk that does not give it back ends the process.
        rank: that then says a line; below 0: the only one.

    Attributes:
        file, n_bytes: see there.
    """

    stays: ClassVar[bool] = True

    def __init__(self, file: SpillFile, rank: int = -1) -> None:
        self.file, self.n_bytes, self._shown_bytes = file, 0, 0
        self._memory = reserved(max(file.free_bytes // HUGE_BYTES, 1) * HUGE_BYTES)
        lost_pages.watch(self._memory, f"folder {file.folder}", rank)
        self._is_whole = True  # all of it shows the file

    def zeros(self, n_elems: int, dtype: np.dtype) -> np.ndarray:
        """Zeros, (n_elems,), behind what was asked for before, which leaves memory. Raises UserError: a full disk."""
        return self._behind(self.n_bytes, n_elems, np.dtype(dtype))

    def pages(self, n_bytes: int) -> np.ndarray:
        """Zeros, uint8, (n_bytes,), that begin with a huge page; else as ``zeros``."""
        return self._behind(-(-self.n_bytes // HUGE_BYTES) * HUGE_BYTES, n_bytes, np.dtype(np.uint8))

    def flat(self, pieces: Sequence[np.ndarray], starts: Sequence[int], n_elems: int, dtype: np.dtype) -> np.ndarray:
        """An array, (n_elems,), for pieces of which each starts at an element of it.

        Returns:
            the memory that they lie in, if each does so where it should; else new memory.
        """
        dtype = np.dtype(dtype)
        first = address(pieces[0]) - address(self._memory) if pieces else 0
        there = [address(self._memory) + first + start * dtype.itemsize for start in starts]
        if pieces and [address(piece) for piece in pieces] == there:
            return self._memory[first:first + n_elems * dtype.itemsize].view(dtype)
        return self.pages(n_elems * dtype.itemsize).view(dtype)

    def keep(self, whole: np.ndarray, shown: Sequence[np.ndarray] = ()) -> None:
        """Have an array in private pages, which keep its contents, but for arrays within it, whole pages, that go on to
        show the file. Raises OSError."""
        self._is_whole, start = False, self.offset(whole)
        for each in sorted(shown, key=self.offset):
            self._keep(start, self.offset(each))
            start = self.offset(each) + each.nbytes
        self._keep(start, self.offset(whole) + whole.nbytes)

    def show(self, array: np.ndarray) -> None:
        """Have an array, whole pages, show the file. What private pages have is lost. Raises OSError."""
        make_file(array, self.file.descriptor, self.offset(array))

    def hide(self, array: np.ndarray) -> None:
        """Have private pages, zero, for an array, whole pages, that shows the file. Raises OSError."""
        self._is_whole = False
        make_private(array)

    def offset(self, array: np.ndarray) -> int:
        """The array's place in the file, in bytes."""
        return address(array) - address(self._memory)

    def _behind(self, start: int, n_elems: int, dtype: np.dtype) -> np.ndarray:
        end = start + -(-n_elems // ALIGN_ELEMS) * ALIGN_ELEMS * dtype.itemsize
        mapped = -(-end // HUGE_BYTES) * HUGE_BYTES
        self.file.reserve(mapped)
        if mapped > self._shown_bytes:
            self.show(self._memory[self._shown_bytes:mapped])
            self._shown_bytes = mapped
        if self._is_whole:
            dismiss(address(self._memory), self.n_bytes // PAGE_BYTES * PAGE_BYTES)
        self.n_bytes = end
        return self._memory[start:start + n_elems * dtype.itemsize].view(dtype)

    def _keep(self, start: int, end: int) -> None:
        """Make whole pages private, a chunk at a time, with their contents."""
        for at in range(start, end, CHUNK_BYTES):
            stop = min(at + CHUNK_BYTES, -(-end // PAGE_BYTES) * PAGE_BYTES)
            chunk = self._memory[at:stop]
            contents = chunk.copy()
            make_private(chunk)
            chunk[...] = contents


def on_disk(folder: str, n_elems: int, dtype: np.dtype) -> np.ndarray:
    """Zeros, (n_elems,), that lie in a file of their own without a name, for as long as they are used.

    Raises:
        UserError: there is no such folder, or the disk is full.
    """
    file = SpillFile(folder)
    try:
        return BackedMemory(file).zeros(n_elems, dtype)
    finally:
        file.close()
