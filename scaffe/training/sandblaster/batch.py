"""A batch and its portions, as visits: places in the order in which a single process would read. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Batch:
    """What one pass goes over.

    Attributes:
        first: its first visit.
        n_images: how many there are.
        portion: images in a portion; the last may have fewer.
    """

    first: int
    n_images: int
    portion: int

    @property
    def n_portions(self) -> int:
        """How many portions there are."""
        return -(-self.n_images // self.portion)

    def images(self, portion: int) -> tuple[int, int]:
        """A portion's first visit, and how many images it has."""
        done = portion * self.portion
        return self.first + done, min(self.portion, self.n_images - done)

    def weight(self, portion: int) -> float:
        """A portion's share of the batch."""
        return self.images(portion)[1] / self.n_images
