"""One shard's part of every table: the master values of an interval, the rule's histories, and the update steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from scaffe.collectives.planning.datatypes import OPS
from scaffe.collectives.server.messages import Settings
from scaffe.collectives.server.rules import Add, Rule
from scaffe.collectives.server.table import Index, Table
from scaffe.collectives.shared.kernels import block_for, combine_ranks

STEP_BYTES = 256 << 10  # summed at a time, so that the sum is still in the L2 cache when the rule reads it
SUM = OPS.index("sum")


class Part:
    """What one shard holds of one table.

    Args:
        values: the whole table's values, flat; the shard writes only to [start, stop).
        start, stop: its interval, in elements.
        rule: how an update changes the values.
    """

    def __init__(self, values: np.ndarray, start: int, stop: int, rule: Rule) -> None:
        self.values, self.start, self.stop, self.rule = values, start, stop, rule
        self.histories = [np.zeros(stop - start, values.dtype) for _ in range(rule.n_histories)]

    def step(self, update: np.ndarray, first: int, settings: Settings) -> None:
        """Apply the rule to the elements [first, first + len(update)) of the table."""
        mine = slice(first - self.start, first - self.start + update.size)
        values, histories = self.values[first : first + update.size], [history[mine] for history in self.histories]
        self.rule.step(values, update, histories, first, settings)


class BatchSteps:
    """Applies one batch's updates on one shard.

    Args:
        part: the shard's part of the batch's table.
        index: where the rows lie; the same for all workers whose updates are summed.
        updates: each worker's update buffer, flat.
    """

    def __init__(self, part: Part, index: Index, updates: Sequence[np.ndarray]) -> None:
        self._part, self._updates = part, updates
        self._runs = index.within(part.start, part.stop).tolist()
        self._addresses = np.array([update.ctypes.data for update in updates], np.int64)
        item = part.values.itemsize
        self._block, self._sums = block_for(part.values.dtype), np.empty(STEP_BYTES // item, part.values.dtype)

    def run(self, workers: tuple[int, ...], settings: Settings) -> None:
        """Sum these workers' updates in the order given, and apply the sum in one step."""
        for first, at, n_elems in self._runs:
            for done in range(0, n_elems, self._sums.size):
                n = min(self._sums.size, n_elems - done)
                self._part.step(self._sum(workers, at + done, n), first + done, settings)

    def _sum(self, workers: tuple[int, ...], at: int, n_elems: int) -> np.ndarray:
        """The sum of elements [at, at + n_elems) of the update buffers, in memory that the caller may overwrite."""
        sums = self._sums[:n_elems]
        if len(workers) == 1:
            np.copyto(sums, self._updates[workers[0]][at : at + n_elems])
            return sums
        item = sums.itemsize
        places = np.append(self._addresses + at * item, sums.ctypes.data)
        combine_ranks(places, np.array(workers), np.array([len(self._addresses)]), 0, n_elems, self._block, SUM)
        return sums


class AddedSteps(BatchSteps):
    """BatchSteps for the rule ``Add``: values and updates are summed in one pass."""

    def run(self, workers: tuple[int, ...], settings: Settings) -> None:
        """See BatchSteps."""
        values, item = self._part.values, self._part.values.itemsize
        n_workers = len(self._addresses)
        sources, target = np.array((n_workers, *workers)), np.array([n_workers])
        for first, at, n_elems in self._runs:
            places = np.append(self._addresses + at * item, values.ctypes.data + first * item)
            combine_ranks(places, sources, target, 0, n_elems, self._block, SUM)


def all_steps(parts: Mapping[Table, Part], batches: Sequence[Sequence[Index]], updates: Sequence[Sequence[np.ndarray]],
              joint: Collection[int]) -> dict[tuple[int, int], BatchSteps]:
    """The steps for every batch of every worker on one shard.

    Args:
        parts: what the shard holds of each table.
        batches, updates: for each worker and batch, the index and the update buffer.
        joint: batches whose updates are summed over all workers and applied in one step.

    Returns:
        Steps by (batch, first worker whose update goes into the step).
    """
    made: dict[tuple[int, int], BatchSteps] = {}
    for worker, own in enumerate(batches):
        for batch, index in enumerate(own):
            if batch in joint and worker:
                made[batch, worker] = made[batch, 0]
                continue
            kind = AddedSteps if type(parts[index.table].rule) is Add else BatchSteps
            made[batch, worker] = kind(parts[index.table], index, [of[batch] for of in updates])
    return made
