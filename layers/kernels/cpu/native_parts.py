"""What kernels that run in parts do alike: take one until none is left (``in_native_parts``), find their own memory."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.native import array_at, taken
from scaffe.layers.kernels.cpu.calls import HEAD


@compiled(inline="always")
def next_part(place: int) -> tuple[int, int, int]:
    """A part of the work that the table at an address describes: its number, or -1 if none is left, where it starts,
    and where it stops. No two threads get the same."""
    head = array_at(place, HEAD, np.int64)
    part, n_parts, length = taken(place), head[1], head[2]
    if part >= n_parts:
        part = -1
    return part, length * part // n_parts, length * (part + 1) // n_parts


@compiled(inline="always")
def part_from(start: int, n_parts: int, length: int) -> int:
    """The number of the part that starts there, of as many as ``in_units`` makes of a length: each has memory of its
    own."""
    return -(-start * n_parts // length)
