"""A flat buffer in pieces, some of which change their memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scaffe.layers.kernels import device


class Pieces:
    """Stands for a flat array; each interval within one piece is an array.

    Args:
        whole: flat, (n_elems,); its pieces that are not in ``moved`` are copied.
        moved: the intervals without memory until ``put``; disjoint, ascending.
        allocate: n_elems → a flat array for the other pieces.

    Attributes:
        places: the pieces' intervals, in elements.
    """

    def __init__(self, whole: Any, moved: Sequence[slice], allocate: Callable[[int], Any]) -> None:
        self.size, self.dtype, self.nbytes = whole.size, whole.dtype, whole.nbytes
        self.places = divided(whole.size, moved)
        starts = {place.start for place in moved}
        kept = [place for place in self.places if place.start not in starts]
        rest, at = allocate(sum(map(_length, kept))), 0
        self._starts = [place.start for place in self.places]
        self._arrays: list[Any] = [None] * len(self.places)
        for place in kept:
            copy_into(rest[at:at + _length(place)], whole[place])
            self.put(place, rest[at:at + _length(place)])
            at += _length(place)

    def put(self, place: slice, array: Any) -> None:
        """Use flat memory, with the contents, for a piece. Raises ValueError if there is no such piece."""
        self._arrays[self.places.index(place)] = array

    def whole(self, to_host: Callable[[Any], np.ndarray]) -> np.ndarray:
        return np.concatenate([to_host(array) for array in self._arrays])

    def __getitem__(self, place: slice) -> Any:
        """The array of an interval. Raises IndexError if it does not lie within one piece that has memory."""
        start, stop, _ = place.indices(self.size)
        number = bisect_right(self._starts, start) - 1
        array, piece = self._arrays[number], self.places[number]
        if array is None or stop > piece.stop:
            raise IndexError(f"elements {start} to {stop} do not lie in one piece of the buffer: {piece}")
        return array[start - piece.start:stop - piece.start]


def copy_into(target: Any, values: Any) -> None:
    """Copy a flat array to another, in host or device memory, and free the first one's memory if it can be."""
    if isinstance(values, np.ndarray) and not isinstance(target, np.ndarray):
        device.copy_from_host(target, values)
    elif isinstance(target, np.ndarray) and not isinstance(values, np.ndarray):
        target[...] = values.get()
    else:
        target[...] = values


def divided(n_elems: int, apart: Sequence[slice]) -> list[slice]:
    """All intervals of a buffer: the given ones, and those between them."""
    edges = sorted({0, n_elems, *(edge for place in apart for edge in (place.start, place.stop))})
    return [slice(start, stop) for start, stop in zip(edges, edges[1:], strict=False)]


def _length(place: slice) -> int:
    return int(place.stop - place.start)
