"""Applies updates on a shard: rules, the shard's part of each table, and the steps of each batch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from scaffe.collectives.planning.datatypes import OPS
from scaffe.collectives.server.memory.common import InMemory
from scaffe.collectives.server.memory.store import Store
from scaffe.collectives.server.protocol.messages import Settings
from scaffe.collectives.server.tables.table import Index, Table
from scaffe.collectives.shared.kernels import block_for, combine_ranks, copy_range


class Rule(Protocol):
    """Applies an update to an interval of a table's values, element by element: an interval may be split anywhere.

    Attributes:
        n_histories: how many history values (momentum and the like) it keeps for every table value.

    A rule may also have ``merges``, False where a step with the sum of some updates is not what a step with each is
    (momentum, AdaGrad, a decay). With a slack above 0 a node then pushes every worker's update by itself, which takes
    its link as often as it has workers; otherwise, and without the attribute, those that come while the last push is
    under way go in one. With slack 0 all workers' updates are one step by definition.
    """

    n_histories: int

    def step(self, values: np.ndarray, update: np.ndarray, histories: list[np.ndarray], first: int,
             settings: Settings) -> None:
        """Change ``values`` and ``histories`` in place.

        Args:
            values, update, histories: flat arrays of the same length in the table's dtype; ``update`` may be
                overwritten.
            first: index in the table of the element ``values[0]``.
            settings: the rate and iteration that the worker passed to ``Batch.update``; those of the first worker if
                several workers' updates are applied in one step.
        """


class Add:
    """values += update, GeePS's own rule: the worker computes the full change, rate included."""

    n_histories = 0

    def step(self, values: np.ndarray, update: np.ndarray, histories: list[np.ndarray], first: int,
             settings: Settings) -> None:
        values += update


STEP_BYTES = 256 << 10  # summed at a time, so that the sum is still in the L2 cache when the rule reads it
SUM = OPS.index("sum")
VALUES, TOTAL, OWN_TOTAL = (np.array([number]) for number in range(3))  # first columns of a step's addresses


class Part:
    """What one shard holds of one table.

    Args:
        values: the whole table's values, flat; the shard writes only to [start, stop).
        start, stop: its interval, in elements.
        histories: what the rule keeps, flat arrays of the interval's length.
    """

    def __init__(self, values: np.ndarray, start: int, stop: int, rule: Rule, histories: list[np.ndarray],
                 tier: InMemory) -> None:
        self.values, self.start, self.stop, self.rule, self.histories = values, start, stop, rule, histories
        self.tier, self._addresses = tier, np.array([history.ctypes.data for history in histories], np.int64)

    def step(self, update: np.ndarray, first: int, settings: Settings) -> None:
        """Apply the rule to the elements [first, first + len(update)) of the table."""
        mine = slice(first - self.start, first - self.start + update.size)
        values, histories = self.values[first : first + update.size], [history[mine] for history in self.histories]
        self.rule.step(values, update, histories, first, settings)
        self.tier.release(self._addresses + mine.start * update.itemsize, update.nbytes)


class BatchSteps:
    """Applies one batch's updates on one shard.

    Where other nodes' updates come as sums, those of this node's workers are summed first, too.

    Args:
        buffers: by worker, an update buffer of the batch, flat.
        received: by worker, what comes from another node under its number: the shard's part of the batch alone, flat.
        totals: two arrays, (STEP_BYTES,), that all steps of the shard use in turns.
    """

    def __init__(self, part: Part, index: Index, buffers: Mapping[int, np.ndarray],
                 received: Mapping[int, np.ndarray], totals: Sequence[np.ndarray]) -> None:
        ranges, values = index.clipped(part.start, part.stop), part.values
        self._part, self._firsts, self._n_elems = part, ranges[:, 0].tolist(), ranges[:, 2].tolist()
        self._block, (self._total, self._own_total) = block_for(values.dtype), [t.view(values.dtype) for t in totals]
        packed = np.cumsum(ranges[:, 2]) - ranges[:, 2]
        columns = [(values, ranges[:, 0]), *((total, 0 * packed) for total in (self._total, self._own_total)),
                  *((array, ranges[:, 1]) for array in buffers.values()),
                  *((array, packed) for array in received.values())]
        self._addresses = np.stack([array.ctypes.data + at * values.itemsize for array, at in columns], axis=1)
        self._moves = values.itemsize * np.array([1, 0, 0] + [1] * (len(columns) - 3))  # bytes an element further on
        self._numbers = {worker: 3 + number for number, worker in enumerate((*buffers, *received))}
        self._is_own = frozenset(buffers if received else ())
        self._orders: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}

    def run(self, workers: tuple[int, ...], settings: Settings) -> None:
        """Sum these workers' updates in the order given, and apply the sum in one step."""
        for addresses, first, n_elems in self._blocks(self._total.size):
            sources = self._sources(workers, addresses, n_elems)
            if sources.size == 1:
                copy_range(addresses, sources[0], TOTAL, 0, n_elems * self._total.itemsize)
            else:
                combine_ranks(addresses, sources, TOTAL, 0, n_elems, self._block, SUM)
            self._part.step(self._total[:n_elems], first, settings)
            self._release(addresses, n_elems)

    def _release(self, addresses: np.ndarray, n_elems: int) -> None:
        self._part.tier.release(addresses, n_elems * self._total.itemsize)

    def _blocks(self, most: int) -> Iterator[tuple[np.ndarray, int, int]]:
        """The shard's part of the batch in blocks of ``most`` elements: addresses, first element, number of them."""
        for run, n_elems in enumerate(self._n_elems):
            for done in range(0, n_elems, most):
                yield self._addresses[run] + done * self._moves, self._firsts[run] + done, min(most, n_elems - done)

    def _sources(self, workers: tuple[int, ...], addresses: np.ndarray, n_elems: int) -> np.ndarray:
        """What is to be summed, in order; the sum of this node's own is made here where it goes in as one."""
        if workers not in self._orders:
            self._orders[workers] = self._ordered(workers)
        own, sources = self._orders[workers]
        if own.size:
            combine_ranks(addresses, own, OWN_TOTAL, 0, n_elems, self._block, SUM)
        return sources

    def _ordered(self, workers: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        own = [self._numbers[worker] for worker in workers if worker in self._is_own]
        if len(own) < 2:
            return np.zeros(0, np.int64), np.array([self._numbers[worker] for worker in workers])
        at = workers.index(next(worker for worker in workers if worker in self._is_own))
        others = [self._numbers[worker] for worker in workers if worker not in self._is_own]
        return np.array(own), np.array([*others[:at], OWN_TOTAL[0], *others[at:]])


class AddedSteps(BatchSteps):
    """BatchSteps for the rule ``Add``: values and updates are summed in one pass."""

    def run(self, workers: tuple[int, ...], settings: Settings) -> None:
        is_whole = not self._is_own and self._part.tier.keeps_all
        for addresses, _, n_elems in self._blocks(1 << 62 if is_whole else self._total.size):
            sources = self._sources(workers, addresses, n_elems)
            combine_ranks(addresses, sources, VALUES, 0, n_elems, self._block, SUM)
            self._release(addresses, n_elems)

    def _ordered(self, workers: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        own, sources = super()._ordered(workers)
        return own, np.append(VALUES, sources)


def all_steps(shard: int, parts: Mapping[Table, Part], batches: Sequence[Sequence[Index]], store: Store,
              joint: Collection[int]) -> dict[tuple[int, int], BatchSteps]:
    """The steps for every batch on one shard.

    Args:
        batches: for each worker of all nodes, the indexes of its batches.
        joint: batches whose updates are summed over all workers and applied in one step.

    Returns:
        Steps by batch and first worker under whose number an update comes that goes into the step.
    """
    made, totals = dict[tuple[int, int], BatchSteps](), [np.empty(STEP_BYTES, np.uint8) for _ in range(2)]
    received = [(worker, batch) for other, worker, batch in store.received if other == shard]
    for worker, batch in [(w, b) for w, own in store.updates.items() for b in range(len(own))] + received:
        index = batches[worker][batch]
        part = parts[index.table]
        if batch not in joint:
            made[batch, worker] = _steps(part, index, batch, store, shard, {worker}, totals)
        elif (same := next((steps for (b, _), steps in made.items() if b == batch), None)) is not None:
            made[batch, worker] = same
        else:
            made[batch, worker] = _steps(part, index, batch, store, shard, range(len(batches)), totals)
    return made


def _steps(part: Part, index: Index, batch: int, store: Store, shard: int, workers: Collection[int],
           totals: Sequence[np.ndarray]) -> BatchSteps:
    kind = AddedSteps if type(part.rule) is Add else BatchSteps
    return kind(part, index, {worker: own[batch] for worker, own in store.updates.items() if worker in workers},
                {worker: array for (other, worker, of), array in store.received.items()
                 if (other, of) == (shard, batch) and worker in workers}, totals)
