"""Caffe's random numbers: each process has one MT19937 stream of raw 32-bit draws."""

from __future__ import annotations

import numpy as np


class Stream:
    """The raw uint32 draws of MT19937, in order, as Caffe's boost generator gives them for Caffe's random_seed (plus
    the solver's rank). A generator seeded from it takes a new seed when ``n_restarts`` has changed."""

    N_BYTES = 4 * 625  # of a saved state: 624 words and the position among them

    def __init__(self, seed: int) -> None:
        self._generator = np.random.MT19937()
        self._generator._legacy_seeding(seed % 2**32)
        self.n_restarts = 0

    def restart(self, seed: int) -> None:
        """Restart the stream from a seed, as ``Stream(seed)`` does, for all who hold this object."""
        self._generator._legacy_seeding(seed % 2**32)
        self.n_restarts += 1

    def catch_up(self) -> None:
        """Does nothing: after a restart, the next draw is already from the new seed (see ``backend.Draws``)."""

    def draw(self, n_elems: int) -> np.ndarray:
        """The next n_elems raw draws, uint32."""
        return self._generator.random_raw(n_elems).astype(np.uint32)

    def skip(self, n_elems: int) -> None:
        """Skip n_elems draws."""
        self._generator.random_raw(n_elems, output=False)

    def to_bytes(self) -> bytes:
        """The generator's state: ``N_BYTES`` of little-endian uint32."""
        state = self._generator.state["state"]
        return np.append(state["key"], state["pos"]).astype("<u4").tobytes()

    def from_bytes(self, place: bytes) -> bool:
        """Continue from what ``to_bytes`` gave, of this class or of a device's generator, whose bytes begin with these.
        Returns whether this class saved it, so that the same numbers follow. Raises ValueError for too few bytes, or a
        position outside the state, where the generator would read foreign memory."""
        if len(place) < self.N_BYTES:
            raise ValueError(f"a random stream's place takes {self.N_BYTES} bytes, found {len(place)}")
        words = np.frombuffer(place[: self.N_BYTES], "<u4")
        if words[-1] > len(words) - 1:
            raise ValueError(f"a random stream's place is at most {len(words) - 1}, found {words[-1]}")
        self._generator.state = {"bit_generator": "MT19937", "state": {"key": words[:-1], "pos": int(words[-1])}}
        return len(place) == self.N_BYTES
