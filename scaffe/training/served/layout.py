"""Which interval of the flat parameters lies in which table, and what the update rule must know of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scaffe.layers.kernels.specs import Segment


@dataclass(frozen=True)
class Place:
    """An interval of the flat parameters that is one table, of one row.

    Attributes:
        name: of its first layer.
        start, stop: in elements of the flat buffers.
        segments: the parameters in it that are updated, in elements from ``start``; ascending.
    """

    name: str
    start: int
    stop: int
    segments: tuple[Segment, ...]

    @property
    def n_elems(self) -> int:
        """Length of the interval."""
        return self.stop - self.start

    @property
    def slice(self) -> slice:
        """The interval, as an index of the flat buffers."""
        return slice(self.start, self.stop)


@dataclass(frozen=True)
class Layout:
    """All tables of a net: what the workers know from their net, and the servers are told.

    Attributes:
        dtype: of the parameters.
        places: the tables, in layer order; disjoint.
        folder: where a file is to have them; empty: they are in memory.
    """

    dtype: str
    places: tuple[Place, ...]
    folder: str = ""


def parts_of(segments: Sequence[Segment], first: int, n_elems: int) -> list[Segment]:
    """The parts of segments that lie in [first, first + n_elems), in elements from ``first``."""
    stop = first + n_elems
    return [Segment(max(s.start, first) - first, min(s.stop, stop) - first, s.lr_mult, s.decay_mult)
            for s in segments if s.start < stop and s.stop > first]
