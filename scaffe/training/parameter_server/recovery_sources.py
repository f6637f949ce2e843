"""What is left of parameters and histories on a parameter server when ranks are lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.server.shards.copies import MOST_ROUNDS
from scaffe.log import info
from scaffe.training.fault_tolerance.state_sources import Part
from scaffe.training.histories import filled, updater_parts
from scaffe.training.parameter_server.tables import ROOT, Tables
from scaffe.training.updater import Updater


class Shards:
    """One rank's part in handing over what was in tables, be it a worker or a server.

    Args:
        tables: None where they have not begun here.
    """

    def __init__(self, tables: Tables | None) -> None:
        self._tables = tables
        self._held: dict[int, tuple[int, int]] = {}  # table and shard, by the first element

    def parts(self, left: Collection[int], communicator: Communicator) -> list[Part] | None:
        """Who gives what. Called by all ranks that are left.

        Args:
            left: ranks, by their old numbers.
            communicator: of these.

        Returns:
            None, on all of them, where the shards have not begun on one.
        """
        have_begun = communicator.allgather_objects(self._tables is not None)
        if self._tables is None or not all(have_begun):
            return None
        found = self._tables.recovery_sources(left)
        self._held = {part.interval.start: (number, shard) for part, number, shard in found}
        if any(part.is_old for part, _, _ in found):
            info("The histories of a lost node's shards are those of their second copies, at most "
                 f"{MOST_ROUNDS} rounds of updates old")
        return [part for part, _, _ in found]

    def of(self, part: Part) -> tuple[np.ndarray, list[np.ndarray]]:
        """A part's values and histories, as this rank's node has them; the latter are none where others have them.

        Raises:
            KeyError: it lies in no table.
        """
        if self._tables is None:
            raise KeyError(part)
        return self._tables.recovery_values(*self._held[part.interval.start])


class Remaining:
    """One worker's part in handing over what was on the server. All that are left make one.

    Until all shards have begun every worker has everything itself: what was restored, or what a solver was rebuilt
    from.

    Args:
        updater: this rank's, with its net's parameters; that of rank 0 has the histories of frozen parameters.
        tables: None where they have not begun here.
        restored: by index, whole histories that the shards were to begin with.
        frozen: the intervals that are in no table.
    """

    def __init__(self, updater: Updater, tables: Tables | None, restored: Mapping[int, np.ndarray],
                 frozen: Sequence[slice]) -> None:
        self._updater, self._shards, self._restored, self._frozen = updater, Shards(tables), restored, frozen
        self._held: list[Part] = []

    def parts(self, left: Collection[int], communicator: Communicator) -> list[Part]:
        """See Strategy.remains.

        Args:
            left: ranks, by their old numbers.
            communicator: of these.
        """
        found = self._shards.parts(left, communicator)
        if found is None:
            return [Part(slice(0, self._updater.params.n_elems), min(left), True)]
        self._restored, self._held = {}, found
        giver = ROOT if ROOT in left else min(left)
        return [*found, *(Part(place, giver, giver == ROOT) for place in self._frozen)]

    def of(self, part: Part) -> tuple[np.ndarray, list[np.ndarray]]:
        """See Strategy.remaining."""
        updater, place = self._updater, part.interval
        n_histories = updater.rule.n_histories if part.is_whole else 0
        if part in self._held:
            values, histories = self._shards.of(part)
            return values, histories[:n_histories]
        held = [[*((0, whole) for i, whole in self._restored.items() if i == index),
                 *updater_parts(updater, index), (place.stop, updater.params.data[:0])] for index in range(n_histories)]
        return updater.params.data[place], [filled(place, parts) for parts in held]
