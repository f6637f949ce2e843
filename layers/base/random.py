"""Caffe's random numbers: one MT19937 stream of raw 32-bit draws a process."""

from __future__ import annotations

import numpy as np


class Stream:
    """The raw uint32 draws of MT19937, in order, as Caffe's boost generator gives them.

    Args:
        seed: Caffe's random_seed (plus the solver's rank).

    Attributes:
        n_restarts: how often ``restart`` was called: who took a key from here takes another when it has changed.
    """

    N_BYTES = 4 * 625  # of a place: 624 words of state and the position

    def __init__(self, seed: int) -> None:
        self._generator = np.random.MT19937()
        self._generator._legacy_seeding(seed % 2**32)
        self.n_restarts = 0

    def restart(self, seed: int) -> None:
        """Begin anew as ``Stream(seed)`` does, for all who draw from here."""
        self._generator._legacy_seeding(seed % 2**32)
        self.n_restarts += 1

    def catch_up(self) -> None:
        """Nothing: a restart shows at the next draw."""

    def draw(self, n_elems: int) -> np.ndarray:
        """The next n_elems raw draws, uint32."""
        return self._generator.random_raw(n_elems).astype(np.uint32)

    def skip(self, n_elems: int) -> None:
        """Leave out n_elems draws."""
        self._generator.random_raw(n_elems, output=False)

    def to_bytes(self) -> bytes:
        """The place in the stream, as little-endian uint32."""
        state = self._generator.state["state"]
        return np.append(state["key"], state["pos"]).astype("<u4").tobytes()

    def from_bytes(self, place: bytes) -> bool:
        """Go on from a place that ``to_bytes`` gave, here or on a device. Returns whether it was here.

        Raises:
            ValueError: bytes that are no such place; the generator would read outside its own memory.
        """
        if len(place) < self.N_BYTES:
            raise ValueError(f"a random stream's place takes {self.N_BYTES} bytes, found {len(place)}")
        words = np.frombuffer(place[: self.N_BYTES], "<u4")
        if words[-1] > len(words) - 1:
            raise ValueError(f"a random stream's place is at most {len(words) - 1}, found {words[-1]}")
        self._generator.state = {"bit_generator": "MT19937", "state": {"key": words[:-1], "pos": int(words[-1])}}
        return len(place) == self.N_BYTES
