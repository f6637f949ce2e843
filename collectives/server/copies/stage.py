"""Where a piece of a shard's histories lies on its way: in memory of its own, so that the shard may go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scaffe.collectives.server.memory.store import Store
from scaffe.collectives.server.memory.tier import InMemory
from scaffe.collectives.server.tables.pieces import Piece, pieces_of
from scaffe.collectives.server.tables.table import Table


class Stage:
    """One shard's pieces, on the node that holds it or on the one that keeps its copy.

    Args:
        pieces: of the shard.
        tables: in the order declared.
        histories: by table, the shard's or their copies, flat, of the shard's interval.
        memory: uint8, at least as long as the longest piece.
        tier: has the histories.

    Attributes:
        pieces: see there.
    """

    def __init__(self, pieces: Sequence[Piece], tables: Sequence[Table], histories: Mapping[Table, list[np.ndarray]],
                 memory: np.ndarray, tier: InMemory) -> None:
        self.pieces, self._tables, self._histories, self._memory = pieces, tables, histories, memory
        self._tier = tier

    def array(self, number: int) -> np.ndarray:
        """The memory of a piece on its way, flat: one history's interval after the other's."""
        piece, own = self.pieces[number], self._own(number)
        n_elems = len(own) * (piece.stop - piece.start)
        return self._memory[: n_elems * own[0].itemsize].view(own[0].dtype)

    def fill(self, number: int) -> None:
        """Copy a piece from the histories."""
        self.array(number)[:] = np.concatenate(own := self._own(number))
        self._leave(own)

    def place(self, number: int) -> None:
        """Copy a piece that has come to where it belongs."""
        own = self._own(number)
        for history, values in zip(own, np.split(self.array(number), len(own)), strict=True):
            history[:] = values
        self._leave(own)

    def _leave(self, own: Sequence[np.ndarray]) -> None:
        self._tier.leave(np.array([history.ctypes.data for history in own]), own[0].nbytes)

    def _own(self, number: int) -> list[np.ndarray]:
        piece = self.pieces[number]
        return [history[piece.start : piece.stop] for history in self._histories[self._tables[piece.table]]]


def stage_of(store: Store, shard: int, n_shards: int) -> Stage:
    """The stage of a shard that a node holds, or of whose histories it keeps the copy.

    Args:
        store: the node's memory.
        shard, n_shards: the shard's number, and how many there are.
    """
    held = store.histories if any(number == shard for number, _ in store.histories) else store.copies
    histories = {table: held[shard, table] for table in store.values}
    pieces = pieces_of({table: len(own) for table, own in histories.items()}, shard, n_shards)
    return Stage(pieces, list(histories), histories, store.stages[shard], store.tier)
