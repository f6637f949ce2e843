"""Where state lies on a parameter server: the shards own what is in tables, and give it when ranks are lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.layers.kernels.backend import is_device
from scaffe.training.fault_tolerance.recoverable import Part
from scaffe.training.fault_tolerance.replacement import tolerates_rank_loss
from scaffe.training.parameter_server import roles
from scaffe.training.parameter_server.options import Consistency, MemoryAccounting
from scaffe.training.parameter_server.tables import ROOT, RecoverySources, Tables, layout_of
from scaffe.training.strategies.fault_tolerance import FaultTolerance
from scaffe.training.strategies.roles import Replica
from scaffe.training.strategies.state_placement import StatePlacement
from scaffe.training.strategies.transfers import Buckets
from scaffe.training.updater import HistoryPart, filled, gather_parts, updater_parts


class ServerState(StatePlacement):
    """The shards own what is in tables; the root owns frozen parameters, whose histories some rules change.

    Attributes:
        restored: by index, whole histories for the shards to begin with.
        has_begun: whether the shards have what there is.
        further_bytes: what the strategy keeps besides, in bytes.
    """

    tables: Tables

    def __init__(self, replica: Replica, how: Consistency, buckets: Buckets) -> None:
        super().__init__(replica, lambda rank: buckets.frozen if rank == ROOT else [])
        self._how, self._buckets, self.frozen = how, buckets.all, buckets.frozen
        self.restored: dict[int, np.ndarray] = {}
        self.has_begun = False
        self.further_bytes: Callable[[], int] = lambda: 0
        self._folder = ""  # of the file that has the tables; empty: they are in memory

    @property
    def kept_bytes(self) -> int:
        return self._accounting.of_worker(is_device(self.replica.net.context.kernels)) + self.further_bytes()

    @property
    def server_bytes(self) -> int:
        return self._accounting.of_server()

    @property
    def _accounting(self) -> MemoryAccounting:
        return MemoryAccounting.of(self.replica, self._how, self._buckets, bool(self._folder))

    def keep_on_disk(self, folder: str) -> None:
        """See StatePlacement: the tables, with histories and what is pushed."""
        self._folder = folder

    def make_tables(self) -> None:
        """Make the tables, and tell servers of them. Called by all workers."""
        replica, names = self.replica, [self.replica.net.nodes[bucket.first_layer].name for bucket in self._buckets]
        layout = layout_of(replica.updater, list(zip(names, (b.place for b in self._buckets), strict=True)),
                           self._folder)
        replica.world.bcast_object(layout, ROOT)  # to those without a net
        replica.net.params.fetch_all()
        self.tables = roles.make_tables(replica.world, replica.updater.rule, replica.updater.param, self._how,
                                              replica.communicator.n_ranks, layout, replica.net.context.kernels.PLACE)
        self._control = replica.world.split(0) if self._how.n_servers else None

    def parameters(self) -> np.ndarray:
        """See StatePlacement. With ``snapshot_diff`` the root's gradients become the shards' last steps."""
        data, updater = super().parameters(), self.replica.updater
        if updater.keeps_step:
            steps = self._gathered(roles.STEPS, [self.tables.histories(updater.rule.n_histories)])
            for whole in steps:  # on the root
                updater.params.diff[:] = self.replica.net.context.kernels.to_device(whole, updater.params.dtype)
        return data

    def histories(self) -> list[np.ndarray]:
        """See StatePlacement. The shards are idle: all workers are here, after ``synchronize_parameters``."""
        updater = self.replica.updater
        return self._gathered(roles.HISTORIES, [[*self.tables.histories(i), *updater_parts(updater, i)]
                                                      for i in range(updater.rule.n_histories)])

    def _gathered(self, command: int, own: Sequence[Sequence[HistoryPart]]) -> list[np.ndarray]:
        """On the root, whole arrays of what all ranks' shards hold."""
        replica, params = self.replica, self.replica.net.params
        self.command(command)
        found = gather_parts(own, params.n_elems, params.dtype, replica.world, ROOT, replica.updater.whole)
        self.tables.server.check_disks()  # a barrier, too
        self.tables.server.rest()
        return found

    def load_history(self, index: int, start: int, values: np.ndarray) -> None:
        super().load_history(index, start, values)
        if self.replica.communicator.rank == ROOT or tolerates_rank_loss(self.replica.options):
            params = self.replica.net.params
            if index not in self.restored:
                self.restored[index] = self.replica.updater.whole(params.n_elems, params.dtype)
            self.restored[index][start:start + len(values)] = values

    def command(self, command: int) -> None:
        """On worker 0: tell the ranks that are servers alone what all ranks do now."""
        if self._control is None or self._control.rank != ROOT:
            return
        for server in range(self.replica.communicator.n_ranks, self._control.n_ranks):
            self._control.messages.send(np.array([command]), server, roles.TAG)


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
