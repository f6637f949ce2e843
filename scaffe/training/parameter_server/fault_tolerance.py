"""FaultTolerance on a parameter server: who gives what was in tables when ranks are lost."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.training.fault_tolerance.state_sources import Part
from scaffe.training.histories import filled, updater_parts
from scaffe.training.parameter_server.state import ServerState
from scaffe.training.parameter_server.tables import ROOT, RecoverySources
from scaffe.training.strategies.fault_tolerance import FaultTolerance


class ServerFaultTolerance(FaultTolerance):
    """Each worker recovers by itself: what was in tables comes from the nodes that hold it, or a second copy of it.

    Until all shards have begun every worker has everything itself: what was restored, or what a solver was rebuilt
    from.
    """

    why_not_fault_tolerant = ""
    counts_updates = False
    state: ServerState

    @classmethod
    def why_no_replacement(cls, options: Any) -> str:
        return f"with -servers {options.servers} lost ranks are not replaced; shrink goes on" * bool(options.servers)

    def abandon(self) -> None:
        if self.state.has_begun:
            self.state.tables.server.abandon()

    def recovery_sources(self, left: Collection[int], communicator: Communicator) -> list[Part]:
        self._sources = RecoverySources(self.state.tables if self.state.has_begun else None)
        self._in_tables = self._sources.parts(left, communicator)
        if self._in_tables is None:
            return [Part(slice(0, self.replica.updater.params.n_elems), min(left), True)]
        giver = ROOT if ROOT in left else min(left)
        return [*self._in_tables, *(Part(place, giver, giver == ROOT) for place in self.state.frozen)]

    def recovery_values(self, part: Part) -> tuple[np.ndarray, list[np.ndarray]]:
        updater, place = self.replica.updater, part.interval
        n_histories = updater.rule.n_histories if part.is_whole else 0
        if part in (self._in_tables or ()):
            values, histories = self._sources.of(part)
            return values, histories[:n_histories]
        restored = self.state.restored if self._in_tables is None else {}
        held = [[*((0, whole) for i, whole in restored.items() if i == index),
                 *updater_parts(updater, index), (place.stop, updater.params.data[:0])] for index in range(n_histories)]
        return updater.params.data[place], [filled(place, parts) for parts in held]
