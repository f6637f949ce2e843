"""Which part of the work a compiled kernel does, for those whose parts have memory of their own."""

from __future__ import annotations

from scaffe.jit import compiled


@compiled(inline="always")
def part_from(start: int, n_parts: int, length: int) -> int:
    """The number of the part that starts there, of as many as ``in_units`` makes of a length."""
    return -(-start * n_parts // length)
