"""What a source of samples gives: samples that are not transformed yet, without a copy where possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Protocol, runtime_checkable

import numpy as np

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Run:
    """Consecutive samples of a batch that have one shape and dtype and lie in one array.

    Attributes:
        pixels: uint8 or float32, 1-D, holds all samples (and perhaps more: it may be a whole mapped file).
        starts: int64 (n,), index of each sample's first element in ``pixels``.
        labels: (n,), any integer dtype.
        shape: (channels, height, width) of each sample.
        interleaved: samples are stored (height, width, channels), as decoders give them; otherwise
            (channels, height, width).
    """

    pixels: np.ndarray
    starts: np.ndarray
    labels: np.ndarray
    shape: Shape
    interleaved: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError if a sample does not lie inside ``pixels``; compiled code does not check again."""
        last = self.pixels.size - prod(self.shape)
        if min(self.shape) < 1 or len(self.starts) and not 0 <= self.starts.min() <= self.starts.max() <= last:
            raise ValueError(f"samples of shape {self.shape} do not lie inside {self.pixels.size} elements")


class Source(Protocol):
    """Samples by record number. Several threads may read at once.

    Attributes:
        n_records: number of records.
    """

    n_records: int

    def read(self, records: np.ndarray) -> Iterator[Run]:
        """Read samples.

        Args:
            records: int64 (n,), record numbers.

        Yields:
            The samples in the order asked for, in as few runs as their shapes, dtypes and places allow. A run is valid
            until the next one is asked for.

        Raises:
            DataError: a record cannot be read.
        """

    def name_of(self, record: int) -> str:
        """What error messages call a record."""

    def close(self) -> None:
        """Release open files."""


@runtime_checkable
class FileSource(Protocol):
    """A source whose samples may be image files."""

    def files(self, records: np.ndarray) -> tuple[list[np.ndarray | None], np.ndarray]:
        """The image files of samples that ``read`` does no more with than to decode them, in colour.

        Args:
            records: int64 (n,), record numbers.

        Returns:
            for each its file, uint8, 1-D, or None for a sample that is something else or cannot be read; and the labels
            (n,), which count where there is a file.

        Raises:
            DataError: the records cannot be read.
        """
