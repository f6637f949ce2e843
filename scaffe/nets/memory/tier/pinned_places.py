"""Page-locked host memory in which arrays of a device lie while they are away."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from scaffe.layers.kernels import device


class PinnedPlaces:
    """One place for each array that moves: those that last keep theirs, and so do parameters that are written anew for
    each iteration; the others have one for as long as a plan does.

    Args:
        lengths: of all arrays, in bytes.
        lasting: by number those that keep theirs, with their places; an empty array where there is none yet: these are
            zero at first.

    Attributes:
        lengths: see there.
    """

    def __init__(self, lengths: Sequence[int], lasting: Mapping[int, np.ndarray]) -> None:
        self.lengths = lengths
        blank = _divided(lengths, sorted(number for number, place in lasting.items() if not place.nbytes))
        for place in blank.values():
            place[...] = 0
        self._lasting = {**lasting, **blank}
        self._moved: dict[int, np.ndarray] = {}

    def __getitem__(self, number: int) -> np.ndarray:
        """An array's place, uint8. Raises KeyError: it has none."""
        return self._lasting[number] if number in self._lasting else self._moved[number]

    def move(self, numbers: Collection[int]) -> None:
        """Have places for these, and no others but those that keep theirs."""
        wanted = sorted(number for number in numbers if number not in self._lasting)
        if wanted != list(self._moved):
            self._moved.clear()
            self._moved = _divided(self.lengths, wanted)


def _divided(lengths: Sequence[int], numbers: Sequence[int]) -> dict[int, np.ndarray]:
    whole, start, found = device.pinned(sum(lengths[i] for i in numbers), np.uint8), 0, {}
    for number in numbers:
        found[number] = whole[start:start + lengths[number]]
        start += lengths[number]
    return found
