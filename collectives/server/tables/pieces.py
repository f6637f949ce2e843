"""Into which pieces a shard's histories are cut on their way to another node. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from scaffe.collectives.server.tables.table import Table

PIECE_BYTES = 4 << 20
"""Of all histories of a piece together: what a copy takes beside itself, on either node."""


class Piece(NamedTuple):
    """All histories of an interval of a table: they go at once, so that they are of one moment.

    Attributes:
        table: the table's number.
        start, stop: in elements of the shard's interval.
    """

    table: int
    start: int
    stop: int


def pieces_of(tables: Mapping[Table, int], shard: int, n_shards: int, most_bytes: int = PIECE_BYTES) -> list[Piece]:
    """The pieces of one shard, those of the first table first.

    Args:
        tables: in the order declared, with the number of histories that each one's rule keeps.
        shard, n_shards: the shard's number, and how many there are.
        most_bytes: of a piece; one element with its histories if that is more.
    """
    found = []
    for number, (table, n_histories) in enumerate(tables.items()):
        start, stop = table.shard(shard, n_shards)
        if n_histories:
            n_elems = max(most_bytes // (n_histories * np.dtype(table.dtype).itemsize), 1)
            found += [Piece(number, at, min(at + n_elems, stop - start)) for at in range(0, stop - start, n_elems)]
    return found


def stage_bytes(tables: Mapping[Table, int], pieces: Sequence[Piece]) -> int:
    """Bytes of the longest piece."""
    n_bytes = [n_histories * np.dtype(table.dtype).itemsize for table, n_histories in tables.items()]
    return max((n_bytes[piece.table] * (piece.stop - piece.start) for piece in pieces), default=0)
