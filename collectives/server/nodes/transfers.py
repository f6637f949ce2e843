"""Rows on their way from one node to another, cut into chunks; what is in one piece is not copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scaffe.collectives.planning.datatypes import OPS
from scaffe.collectives.server.memory.tier import InMemory
from scaffe.collectives.server.nodes.strip import Strip
from scaffe.collectives.shared.kernels import combine2

CHUNK_BYTES = 63 << 10
"""Below 64 KiB, Open MPI's eager limit over TCP. A longer message begins with a handshake, which waits behind the data
of the other direction on the same connection: two nodes that send to each other at once go at half the speed then."""
SUM = OPS.index("sum")


class Staging:
    """Chunks of memory that are used again and again; for one thread. ``tier`` has what is sent and received."""

    def __init__(self, tier: InMemory | None = None) -> None:
        self._tier = tier or InMemory()
        self._free: list[np.ndarray] = []

    def take(self, n_elems: int, dtype: np.dtype) -> np.ndarray:
        """Memory for at most ``CHUNK_BYTES``, uninitialised."""
        whole = self._free.pop() if self._free else np.empty(CHUNK_BYTES, np.uint8)
        return whole[: n_elems * dtype.itemsize].view(dtype)

    def give_back(self, chunk: np.ndarray) -> None:
        """``chunk``, which ``take`` gave, is not used any more."""
        self._free.append(chunk.base)  # type: ignore[arg-type]

    def leave(self, rows: np.ndarray) -> None:
        """Rows in one piece, of a table or of ours, have been sent, added or received."""
        self._tier.leave(np.array([rows.ctypes.data]), rows.nbytes)


class Transfer:
    """What sending and receiving have in common; ``staging`` has memory for chunks that are not in one piece.

    Attributes:
        n_left: elements that have not been handed out yet.
        n_under_way: chunks handed out and not done.
        done: called by who sends or receives the chunks, when all are done.
    """

    def __init__(self, strip: Strip, dtype: np.dtype, staging: Staging, done: Callable[[], None]) -> None:
        self._strip, self._dtype, self._staging, self.done = strip, dtype, staging, done
        self.n_left, self.n_under_way = strip.n_elems, 0
        self._staged: dict[int, int] = {}  # chunks of ours, by address: the first element

    @property
    def is_done(self) -> bool:
        """Whether all chunks are done."""
        return not self.n_left and not self.n_under_way

    def _stage(self, at: int, n_elems: int) -> np.ndarray:
        chunk = self._staging.take(n_elems, self._dtype)
        self._staged[chunk.ctypes.data] = at
        return chunk

    def _advance(self) -> tuple[int, int]:
        """The next chunk: its first element and how many."""
        at = self._strip.n_elems - self.n_left
        n_elems = min(self.n_left, CHUNK_BYTES // self._dtype.itemsize)
        self.n_left -= n_elems
        self.n_under_way += 1
        return at, n_elems


class Outgoing(Transfer):
    """Rows to send: the sum of some arrays' elements, in the order of the arrays.

    Args:
        arrays: flat, of one dtype.
        strip: the elements, the same of all arrays.
        staging, done: see ``Transfer``.
        yields: whether they wait for other rows to the same peer.
    """

    def __init__(self, arrays: Sequence[np.ndarray], strip: Strip, staging: Staging, done: Callable[[], None],
                 yields: bool = False) -> None:
        super().__init__(strip, arrays[0].dtype, staging, done)
        self._arrays, self.yields = arrays, yields

    def next(self) -> np.ndarray:
        """The next chunk, contiguous; ``finish`` gives it back."""
        at, n_elems = self._advance()
        place = self._strip.slice(at, n_elems)
        if place is not None and len(self._arrays) == 1:
            return self._arrays[0][place]
        total = self._stage(at, n_elems)
        self._strip.gather(self._arrays[0], at, total)
        for array in self._arrays[1:]:
            self._add(array, place, at, total)
        for array in self._arrays if place is not None else ():
            self._staging.leave(array[place])
        return total

    def finish(self, chunk: np.ndarray) -> None:
        """A chunk has been sent."""
        self.n_under_way -= 1
        self._staging.leave(chunk)
        if self._staged and self._staged.pop(chunk.ctypes.data, -1) >= 0:
            self._staging.give_back(chunk)

    def _add(self, array: np.ndarray, place: slice | None, at: int, total: np.ndarray) -> None:
        if place is not None:
            combine2(total, array[place], total, SUM)
            return
        part = self._staging.take(total.size, self._dtype)
        self._strip.gather(array, at, part)
        combine2(total, part, total, SUM)
        self._staging.give_back(part)


class Incoming(Transfer):
    """Rows to receive into an array.

    Args:
        array: flat.
        strip: the elements that are written.
        staging, done: see ``Transfer``.
    """

    def __init__(self, array: np.ndarray, strip: Strip, staging: Staging, done: Callable[[], None]) -> None:
        super().__init__(strip, array.dtype, staging, done)
        self._array = array

    def next(self) -> np.ndarray:
        """Memory for the next chunk, contiguous; ``finish`` takes it when it has been filled."""
        at, n_elems = self._advance()
        place = self._strip.slice(at, n_elems)
        return self._stage(at, n_elems) if place is None else self._array[place]

    def finish(self, chunk: np.ndarray) -> None:
        """A chunk has been filled."""
        self.n_under_way -= 1
        self._staging.leave(chunk)
        at = self._staged.pop(chunk.ctypes.data, -1) if self._staged else -1
        if at >= 0:
            self._strip.scatter(chunk, at, self._array)
            self._staging.give_back(chunk)
