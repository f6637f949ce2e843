"""What a source gives: samples where they lie, before any transformation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Run:
    """Samples next to each other in a batch, of one shape and type, all inside one array.

    Attributes:
        pixels: 1-D uint8 or float32.
        starts: int64 (n,), each sample's first element in ``pixels``.
        labels: (n,), any number type.
        shape: (channels, height, width).
        interleaved: a sample lies as (height, width, channels), as decoders give it; else as (channels, height, width).
    """

    pixels: np.ndarray
    starts: np.ndarray
    labels: np.ndarray
    shape: Shape
    interleaved: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError where a sample does not lie inside ``pixels``: compiled code looks no more."""
        last = self.pixels.size - prod(self.shape)
        if min(self.shape) < 1 or len(self.starts) and not 0 <= self.starts.min() <= self.starts.max() <= last:
            raise ValueError(f"samples of shape {self.shape} do not lie inside {self.pixels.size} elements")


class Source(Protocol):
    """Samples by number; read by many threads at once."""

    n_records: int

    def read(self, records: np.ndarray) -> Iterator[Run]:
        """The samples of these record numbers, in this order, in as few runs as they allow. Raises DataError."""

    def name_of(self, record: int) -> str:
        """How messages call a record."""

    def close(self) -> None:
        """Let go of files."""
