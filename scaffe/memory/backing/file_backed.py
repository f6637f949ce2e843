"""Memory of parameters and histories that a spill file backs, so that they can be made without ever being in memory
whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from scaffe import mapped_files
from scaffe.errors import UserError
from scaffe.mapped_memory import HUGE_BYTES, PAGE_BYTES, address, dismiss, in_pages, make_file, make_private, reserved
from scaffe.memory.backing.spill_file import CHUNK_BYTES, SpillFile

LEAST_BYTES = 64 << 20  # of a window
SHARE = 4  # a window is at least this part of all that was made before, so that there are few


class Windows:
    """Mappings of parts of the file, each at contiguous addresses. What does not fit behind the last one gets a new
    one. Two may map the same part of the file: they then show the same pages.

    Args:
        file: the file; parts behind its end may not be touched.
        rank: for the line that is printed if a page is lost; below 0 if it is the only one.
    """

    def __init__(self, file: SpillFile, rank: int) -> None:
        self._file, self._rank = file, rank
        self._windows: list[tuple[int, np.ndarray]] = []  # where each begins in the file, and its memory

    def part(self, start: int, n_bytes: int) -> np.ndarray:
        """The file's bytes from ``start`` on, uint8, at contiguous addresses. Raises UserError if no addresses are
        left."""
        for begin, memory in reversed(self._windows):
            end = begin + memory.nbytes
            if begin <= start < end and start + n_bytes <= end:  # an empty part has an address too
                found: np.ndarray = memory[start - begin:start - begin + n_bytes]
                return found
        begin = start // HUGE_BYTES * HUGE_BYTES
        self._windows.append((begin, self._new(begin, start + n_bytes)))
        return self.part(start, n_bytes)

    def of(self, array: np.ndarray) -> tuple[int, np.ndarray]:
        """The window that has an array: its place in the file, in bytes, and its memory. Raises ValueError if there is
        none."""
        for begin, memory in self._windows:
            if 0 <= address(array) - address(memory) < memory.nbytes:
                return begin, memory
        raise ValueError("expected an array within a window of the file")

    def offset(self, array: np.ndarray) -> int:
        begin, memory = self.of(array)
        return begin + address(array) - address(memory)

    def leave_memory(self, end: int) -> None:
        """Take the pages before a place in the file out of memory; the file has them. Raises OSError."""
        for begin, memory in self._windows:
            dismiss(address(memory), max(min(end - begin, memory.nbytes), 0))

    def forget_before(self, array: np.ndarray) -> None:
        """Give up the windows before an array's: their addresses are freed with the last array there."""
        first = next(i for i, (_, memory) in enumerate(self._windows) if memory is self.of(array)[1])
        del self._windows[:first]

    def _new(self, begin: int, end: int) -> np.ndarray:
        least = -(-(end - begin) // HUGE_BYTES) * HUGE_BYTES
        try:
            memory = reserved(max(least, LEAST_BYTES, begin // SHARE // HUGE_BYTES * HUGE_BYTES))
        except UserError:
            memory = reserved(least)
        make_file(memory, self._file.descriptor, begin)
        mapped_files.watch(memory, f"folder {self._file.folder}", self._rank)
        return memory


ALIGN_ELEMS = 16  # as in the flat buffers, so that parameters that are made in turn lie as they do there


class FileBackedMemory:
    """Addresses that map a file, each its own place there, or private pages. See ParamMemory.

    What is made here lies in the file at first, whose pages the system takes out of memory as it needs them. A memory
    plan replaces them by private pages, moves these out and back by itself, and maps the file again for whoever wants
    to read all.

    Args:
        file: its first ``n_bytes`` are used. If the disk fails to read it, the process ends.
        rank: for the line that is then printed; below 0 if it is the only one.
    """

    stays: ClassVar[bool] = True

    def __init__(self, file: SpillFile, rank: int = -1) -> None:
        self.file, self.n_bytes, self._windows = file, 0, Windows(file, rank)
        self.offset = self._windows.offset  # of an array in the file, in bytes
        self._is_whole = True  # all of it shows the file

    def zeros(self, n_elems: int, dtype: np.dtype) -> np.ndarray:
        """Zeros, (n_elems,), behind what was asked for before, whose pages leave memory. Raises UserError if the disk
        is full, or no addresses are left."""
        return self._behind(self.n_bytes, n_elems, np.dtype(dtype))

    def pages(self, n_bytes: int) -> np.ndarray:
        return self._behind(-(-self.n_bytes // HUGE_BYTES) * HUGE_BYTES, n_bytes, np.dtype(np.uint8))

    def flat(self, pieces: Sequence[np.ndarray], starts: Sequence[int], n_elems: int, dtype: np.dtype) -> np.ndarray:
        """An array, (n_elems,), for pieces of which each starts at an element of it. Returns the memory in which they
        lie, if each does so where it should (at other addresses, if these are not contiguous); else new memory."""
        dtype = np.dtype(dtype)
        first = self.offset(pieces[0]) if pieces else 0
        there = [first + start * dtype.itemsize for start in starts]
        if pieces and [self.offset(piece) for piece in pieces] == there:
            return self._windows.part(first, n_elems * dtype.itemsize).view(dtype)
        return self.pages(n_elems * dtype.itemsize).view(dtype)

    def is_same(self, one: np.ndarray, other: np.ndarray) -> bool:
        return self.offset(one) == self.offset(other)

    def keep(self, whole: np.ndarray, shown: Sequence[np.ndarray] = ()) -> None:
        """Put an array into private pages with its contents, except arrays within it, whole pages, that go on to show
        the file. Raises UserError if there are no pages."""
        self._windows.forget_before(whole)
        self._is_whole, (begin, memory) = False, self._windows.of(whole)
        start = self.offset(whole) - begin
        for each in sorted(shown, key=self.offset):
            _keep(memory, start, self.offset(each) - begin)
            start = self.offset(each) - begin + each.nbytes
        _keep(memory, start, self.offset(whole) - begin + whole.nbytes)

    def show(self, array: np.ndarray) -> None:
        """Map the file at an array's addresses, whole pages. The contents of private pages are lost. Raises
        UserError."""
        make_file(array, self.file.descriptor, self.offset(array))

    def hide(self, array: np.ndarray) -> None:
        """Put private pages, zero, at the addresses of an array, whole pages, that shows the file. Raises UserError."""
        self._is_whole = False
        make_private(array)

    def _behind(self, start: int, n_elems: int, dtype: np.dtype) -> np.ndarray:
        end = start + -(-n_elems // ALIGN_ELEMS) * ALIGN_ELEMS * dtype.itemsize
        self.file.reserve(-(-end // HUGE_BYTES) * HUGE_BYTES)
        made = self._windows.part(start, end - start)
        if self._is_whole:
            self._windows.leave_memory(self.n_bytes // PAGE_BYTES * PAGE_BYTES)
        self.n_bytes = end
        return made[:n_elems * dtype.itemsize].view(dtype)


def _keep(memory: np.ndarray, start: int, end: int) -> None:
    """Make whole pages private with their contents, a chunk at a time."""
    for at in range(start, end, CHUNK_BYTES):
        chunk = memory[at:min(at + CHUNK_BYTES, -(-end // PAGE_BYTES) * PAGE_BYTES)]
        contents = chunk.copy()
        make_private(chunk)
        chunk[...] = contents


def file_backed_zeros(folder: str, n_elems: int, dtype: np.dtype) -> np.ndarray:
    """Zeros, (n_elems,), in a file of their own without a name, for as long as they are used. Raises UserError if there
    is no such folder, or the disk is full."""
    file = SpillFile(folder)
    try:
        return FileBackedMemory(file).zeros(n_elems, dtype)
    finally:
        file.close()


class StagedOnHost:
    """See ParamMemory: parameters are made in host memory, and wait there until it is known which of them lie on the
    device."""

    stays: ClassVar[bool] = False

    def zeros(self, n_elems: int, dtype: np.dtype) -> np.ndarray:
        return in_pages(n_elems, np.dtype(dtype))

    def flat(self, pieces: Sequence[np.ndarray], starts: Sequence[int], n_elems: int, dtype: np.dtype) -> np.ndarray:
        """See ParamMemory: new memory, whose pages are taken as parameters are written."""
        return in_pages(n_elems, np.dtype(dtype))

    def is_same(self, one: np.ndarray, other: np.ndarray) -> bool:
        return False
