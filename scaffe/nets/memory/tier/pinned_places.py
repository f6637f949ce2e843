"""Page-locked host memory in which arrays of a device lie while they are away."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from scaffe.layers.kernels import device


class PinnedPlaces:
    """One place for each array that moves: those that last keep theirs, the others have one for as long as a plan does.

    Args:
        lengths: of all arrays, in bytes.
        lasting: the numbers of those that last; their places are zero at first.
    """

    def __init__(self, lengths: Sequence[int], lasting: Collection[int]) -> None:
        self._lengths = lengths
        self._lasting = _divided(lengths, sorted(lasting))
        self._moved: dict[int, np.ndarray] = {}
        for place in self._lasting.values():
            place[...] = 0

    def __getitem__(self, number: int) -> np.ndarray:
        """An array's place, uint8. Raises KeyError: it has none."""
        return self._lasting[number] if number in self._lasting else self._moved[number]

    def move(self, numbers: Collection[int]) -> None:
        """Have places for these, which do not last, and no others."""
        wanted = sorted(numbers)
        if wanted != list(self._moved):
            self._moved.clear()
            self._moved = _divided(self._lengths, wanted)


def _divided(lengths: Sequence[int], numbers: Sequence[int]) -> dict[int, np.ndarray]:
    whole, start, found = device.pinned(sum(lengths[i] for i in numbers), np.uint8), 0, {}
    for number in numbers:
        found[number] = whole[start:start + lengths[number]]
        start += lengths[number]
    return found
