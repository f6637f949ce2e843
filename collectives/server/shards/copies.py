"""Second copies of shards' histories on other nodes, which survive the loss of the shard's node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scaffe.collectives.server.memory.common import InMemory
from scaffe.collectives.server.memory.store import Store
from scaffe.collectives.server.tables.table import HistoryChunk, Table, history_chunks

ROUNDS_APART = 4
"""A chunk is sent again after so many rounds. The sum of gradients that momentum 0.9 keeps is 7 updates long."""
MOST_ROUNDS = 16
"""How many rounds a copy may be behind. Updates wait for it only where sending all chunks takes longer than that."""


def updates_a_round(n_workers: int, slack: float) -> int:
    """How many updates of a table make a round where so many workers have such a slack."""
    return n_workers if slack else 1


class CopySchedule:
    """Decides which chunk of a shard is sent to its copy next. At first the copy equals the shard. ``chunks``: of the
    shard; none where it has no copy; ``a_round``: updates of a table that make a round; see ``updates_a_round``."""

    def __init__(self, chunks: Sequence[HistoryChunk], n_tables: int, a_round: int) -> None:
        self._table_of = np.array([chunk.table for chunk in chunks], np.int64)
        self._apart, self._most = ROUNDS_APART * a_round, MOST_ROUNDS * a_round
        self._made = np.zeros(n_tables, np.int64)  # updates of each table
        self._kept = np.zeros(len(chunks), np.int64)  # of them, those that the copy of each chunk has
        self._oldest = np.zeros(n_tables, np.int64)  # the least of a table's chunks
        self._has_pieces = np.isin(np.arange(n_tables), self._table_of)
        self._under_way: tuple[int, int] | None = None  # a chunk's number, and the updates that it has

    @property
    def is_under_way(self) -> bool:
        return self._under_way is not None

    def must_wait(self, table: int) -> bool:
        """Whether an update of the table has to wait for the copy."""
        return bool(self._has_pieces[table]) and self._made[table] - self._oldest[table] >= self._most

    def made(self, table: int) -> None:
        self._made[table] += 1

    def begin(self) -> int | None:
        """Returns the chunk to be sent now, with what it holds now; None for none."""
        if self._under_way is not None or not self._kept.size:
            return None
        behind = self._made[self._table_of] - self._kept
        number = int(behind.argmax())
        if behind[number] < self._apart:
            return None
        self._under_way = number, int(self._made[self._table_of[number]])
        return number

    def kept(self) -> None:
        """The other node has received the chunk that was under way."""
        if self._under_way is None:
            raise RuntimeError("a chunk has come to its copy that was not under way")
        number, made = self._under_way
        self._kept[number], self._under_way = made, None
        table = self._table_of[number]
        self._oldest[table] = self._kept[self._table_of == table].min()


class Stage:
    """One shard's chunks on their way, on the node that holds the shard or on the one that keeps its copy. ``chunks``:
    of the shard; ``memory``: uint8, at least as long as the longest chunk."""

    def __init__(self, chunks: Sequence[HistoryChunk], tables: Sequence[Table],
                 histories: Mapping[Table, list[np.ndarray]], memory: np.ndarray, tier: InMemory) -> None:
        self.chunks, self._tables, self._histories, self._memory = chunks, tables, histories, memory
        self._tier = tier

    def array(self, number: int) -> np.ndarray:
        """The memory of a chunk on its way, flat: one history's interval after the other's."""
        chunk, own = self.chunks[number], self._own(number)
        n_elems = len(own) * (chunk.stop - chunk.start)
        return self._memory[: n_elems * own[0].itemsize].view(own[0].dtype)

    def fill(self, number: int) -> None:
        self.array(number)[:] = np.concatenate(own := self._own(number))
        self._release(own)

    def place(self, number: int) -> None:
        own = self._own(number)
        for history, values in zip(own, np.split(self.array(number), len(own)), strict=True):
            history[:] = values
        self._release(own)

    def _release(self, own: Sequence[np.ndarray]) -> None:
        self._tier.release(np.array([history.ctypes.data for history in own]), own[0].nbytes)

    def _own(self, number: int) -> list[np.ndarray]:
        chunk = self.chunks[number]
        return [history[chunk.start : chunk.stop] for history in self._histories[self._tables[chunk.table]]]


def stage_of(store: Store, shard: int, n_shards: int) -> Stage:
    """The stage of a shard that a node holds, or of whose histories it keeps the copy. ``shard``, ``n_shards``: the
    shard's number, and how many there are."""
    held = store.histories if any(number == shard for number, _ in store.histories) else store.copies
    histories = {table: held[shard, table] for table in store.values}
    chunks = history_chunks({table: len(own) for table, own in histories.items()}, shard, n_shards)
    return Stage(chunks, list(histories), histories, store.stages[shard], store.tier)
