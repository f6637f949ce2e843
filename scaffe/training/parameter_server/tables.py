"""The net's parameters on a parameter server: pulled and pushed table by table, saved and restored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.server import Batch, ParameterServer
from scaffe.collectives.server.shards.copies import MOST_ROUNDS
from scaffe.log import info
from scaffe.nets.flat_params import copy_into
from scaffe.training import updater as histories
from scaffe.training.fault_tolerance.recoverable import Part
from scaffe.training.parameter_server.layout import Layout, Place, ShardRule

ROOT = 0
"""The rank that has the first values: always a worker."""
LOADED_ELEMS = 1 << 18
"""Of a history that rank 0 gives to all at a time."""


class Tables:
    """One rank's end of the tables, a worker's or a server's. All ranks make one, and start and close it together.

    Args:
        make_rule: from a table's place to the rule that its shards run.
        memory: where a worker's net has its parameters, "host" or "device".

    Attributes:
        batches: on a worker, a batch for each place.
    """

    def __init__(self, world: Communicator, slack: float, n_servers: int, layout: Layout,
                 make_rule: Callable[[Place], ShardRule], memory: str = "host", keeps_copies: bool = False) -> None:
        self.layout, self._world = layout, world
        self.server = ParameterServer(world, slack, n_servers, keeps_copies=keeps_copies, folder=layout.folder)
        self.tables = [self.server.table(f"{number} {place.name}", 1, place.n_elems, make_rule(place),
                                          self.layout.dtype) for number, place in enumerate(self.layout.places)]
        self.batches: list[Batch] = []
        if self.server.is_worker:
            self.batches = [self.server.batch(table, range(1), memory) for table in self.tables]

    def start(self, data: np.ndarray | None = None, histories: Mapping[int, np.ndarray] | None = None) -> None:
        """Start the server. Called by all ranks.

        Args:
            data: on rank 0, the flat parameters to start from, in host memory.
            histories: on rank 0, the rule's histories to start from, flat, by index; those not given are zero.
        """
        values = {} if data is None else {table.name: data[place.slice]
                                          for table, place in zip(self.tables, self.layout.places, strict=True)}
        self.server.start(values)
        given = histories or {}
        for index in self._world.bcast_object(sorted(given), ROOT):
            self._load(index, given.get(index))
        self._world.barrier()

    def _load(self, index: int, whole: np.ndarray | None) -> None:
        for table, place in zip(self.tables, self.layout.places, strict=True):
            held = [(start, own[index]) for start, own in [self.server.histories(table), *self.server.copies(table)]
                    if own]
            for at in range(0, place.n_elems, LOADED_ELEMS):
                values = np.empty(min(LOADED_ELEMS, place.n_elems - at), self.layout.dtype)
                if whole is not None:
                    values[:] = whole[place.start + at:][:values.size]
                self._world.bcast(values, ROOT)
                for start, history in held:
                    first, last = max(start, at), min(start + history.size, at + values.size)
                    if first < last:
                        history[first - start:last - start] = values[first - at:last - at]
                self.server.rest()

    def histories(self, index: int) -> list[histories.HistoryPart]:
        """This rank's shard's parts of one history, as (first element of the flat buffers, values)."""
        held = [(place.start, *self.server.histories(table))
                for table, place in zip(self.tables, self.layout.places, strict=True)]
        return [(start + first, own[index]) for start, first, own in held if own]

    def close(self) -> list[tuple[int, int]]:
        """Shut the server down. Called by all ranks.
        Returns, for each shard, how many reads and updates it has taken."""
        self.server.check_disks()
        self.server.close()
        return [taken for taken in self._world.allgather_objects(self.server.taken) if taken is not None]

    def pull(self, number: int, out: Any, newest: bool = False, prefetched: bool = False) -> int:
        """Copy a table into ``out``, (n_elems,), as new as the slack asks for; waits for it. Returns how many
        iterations the slowest worker was behind this one.

        Args:
            out: the whole flat parameters, in the memory that the tables were made for.
            newest: with all updates of earlier iterations, of all workers.
            prefetched: what was asked for in an earlier iteration will do.
        """
        batch = self.batches[number]
        mine, rows = out[self.layout.places[number].slice], batch.read(newest, prefetched)[0]
        for piece in batch.chunks(rows):
            copy_into(mine[piece], rows[piece])
        batch.post_read()
        return self.server.staleness.pop()  # a list of all of them would grow without end

    def push(self, number: int, gradient: Any, factor: Any, rate: float, iteration: float) -> None:
        """Hand a table's gradient to the shards; waits until they have applied the one before. ``factor``: multiplies
        the gradient: a number, or an array on the device whose first element does."""
        batch = self.batches[number]
        by = factor[:1] if hasattr(factor, "__cuda_array_interface__") else gradient.dtype.type(factor)
        mine, pushed = gradient[self.layout.places[number].slice], batch.pre_update()[0]
        for piece in batch.chunks(pushed):
            np.multiply(mine[piece], by, out=pushed[piece])
        batch.update(rate, iteration)


class RecoverySources:
    """What one rank, worker or server, gives after a loss of what was in tables. ``tables``: None where they have not
    begun here."""

    def __init__(self, tables: Tables | None) -> None:
        self._tables = tables
        self._held: dict[int, tuple[int, int]] = {}  # table and shard, by the first element

    def parts(self, left: Collection[int], communicator: Communicator) -> list[Part] | None:
        """Who gives what. Called by all ranks that are left.
        ``left``: by their old numbers. Returns None, on all of them, where the shards have not begun on one."""
        have_begun = communicator.allgather_objects(self._tables is not None)
        if self._tables is None or not all(have_begun):
            return None
        found = []
        for number, (table, place) in enumerate(zip(self._tables.tables, self._tables.layout.places, strict=True)):
            for shard, start, stop, giver, is_whole, is_copy in self._tables.server.recovery_sources(table, left):
                interval = slice(place.start + start, place.start + stop)
                found.append((Part(interval, giver, is_whole, is_copy), number, shard))
        self._held = {part.interval.start: (number, shard) for part, number, shard in found}
        if any(part.is_old for part, _, _ in found):
            info("The histories of a lost node's shards are those of their second copies, at most "
                 f"{MOST_ROUNDS} rounds of updates old")
        return [part for part, _, _ in found]

    def of(self, part: Part) -> tuple[np.ndarray, list[np.ndarray]]:
        """A part's values and histories, as this rank's node has them; no histories where others have them.
        Raises KeyError if it lies in no table."""
        if self._tables is None:
            raise KeyError(part)
        number, shard = self._held[part.interval.start]
        return self._tables.server.recovery_values(self._tables.tables[number], shard)


def layout_of(updater: Any, places: Sequence[tuple[str, slice]], folder: str = "") -> Layout:
    """The layout that a worker knows from its net."""
    return Layout(updater.params.dtype.name, tuple(
        Place(name, place.start, place.stop, tuple(updater.segments(place, place.start))) for name, place in places),
        folder)
