"""When a shard sends which piece of its histories to its second copy: a state machine. Pure, no I/O.

One piece is under way at a time, and the one that is most updates behind goes next, as it is by then: what has changed
meanwhile is sent once. So a copy takes no more memory however slow the way is. A shard whose copy is too many updates
behind makes no further ones until it has caught up.

A *round* is as many updates of a table as come in an iteration in which every worker makes one: one with slack 0,
where all workers' make one step, else one of each worker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.collectives.server.tables.pieces import Piece

ROUNDS_APART = 4
"""A piece goes again after so many rounds. The sum of gradients that momentum 0.9 keeps is 7 updates long."""
MOST_ROUNDS = 16
"""So many rounds a copy may be behind: reached only where a whole copy takes longer than the workers need for them."""


def updates_a_round(n_workers: int, slack: float) -> int:
    """How many updates of a table make a round where so many workers have such a slack."""
    return n_workers if slack else 1


class Copying:
    """The sending side of one shard's copy, which is as new as the shard where this begins.

    Args:
        pieces: of the shard; none where it has no copy.
        n_tables: how many tables there are.
        a_round: updates of a table that make a round; see ``updates_a_round``.
    """

    def __init__(self, pieces: Sequence[Piece], n_tables: int, a_round: int) -> None:
        self._table_of = np.array([piece.table for piece in pieces], np.int64)
        self._apart, self._most = ROUNDS_APART * a_round, MOST_ROUNDS * a_round
        self._made = np.zeros(n_tables, np.int64)  # updates of each table
        self._kept = np.zeros(len(pieces), np.int64)  # of them, those that the copy of each piece has
        self._oldest = np.zeros(n_tables, np.int64)  # the least of a table's pieces
        self._has_pieces = np.isin(np.arange(n_tables), self._table_of)
        self._under_way: tuple[int, int] | None = None  # a piece's number, and the updates that it has

    @property
    def is_under_way(self) -> bool:
        """Whether a piece is on its way."""
        return self._under_way is not None

    def must_wait(self, table: int) -> bool:
        """Whether an update of the table has to wait for the copy."""
        return bool(self._has_pieces[table]) and self._made[table] - self._oldest[table] >= self._most

    def made(self, table: int) -> None:
        """The shard has made an update of a table."""
        self._made[table] += 1

    def begin(self) -> int | None:
        """Returns the piece to be sent now, with what it holds now; None for none."""
        if self._under_way is not None or not self._kept.size:
            return None
        behind = self._made[self._table_of] - self._kept
        number = int(behind.argmax())
        if behind[number] < self._apart:
            return None
        self._under_way = number, int(self._made[self._table_of[number]])
        return number

    def kept(self) -> None:
        """The other node has the piece that was under way, all of it, in its place."""
        if self._under_way is None:
            raise RuntimeError("a piece has come to its copy that was not under way")
        number, made = self._under_way
        self._kept[number], self._under_way = made, None
        table = self._table_of[number]
        self._oldest[table] = self._kept[self._table_of == table].min()
