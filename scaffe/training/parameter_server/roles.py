"""Ranks of a parameter server: the last ``-servers`` have no net, but a thread that serves a shard."""

from __future__ import annotations

import math
import signal
from argparse import Namespace
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from scaffe import forking
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import RankLost
from scaffe.collectives.server import ParameterServer
from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.training.early_signals import NUMBERS
from scaffe.training.fault_tolerance.recoverable import Given, Part, Progress, RecoverableRank
from scaffe.training.fault_tolerance.recovery_state_machine import NothingLeft, RecoveryStateMachine
from scaffe.training.fault_tolerance.replacement import keeps_copies
from scaffe.training.parameter_server.layout import Layout, ShardRule
from scaffe.training.parameter_server.options import Consistency, add_servers_flag
from scaffe.training.parameter_server.tables import ROOT, RecoverySources, Tables
from scaffe.training.strategies.roles import SERVER, Role, Roles, place_servers
from scaffe.training.strategies.transfers import add_bucket_flag
from scaffe.training.update_rules import UpdateRule, update_rules
from scaffe.training.updater import gather_parts

HISTORIES, STEPS, FINISH = range(3)
TAG = 2


class Server(RecoverableRank):
    """Holds a shard until the workers end. As a RecoverableRank it hands over what its node has of lost shards."""

    kind = SERVER

    def __init__(self, role: Role, param: Any, how: Consistency) -> None:
        self.world, self.machine = role.world, RecoveryStateMachine(counts_updates=False)
        self._param, self._how, self._n_workers = param, how, role.n_replicas
        self._tables: Tables | None = None
        self._sources = RecoverySources(None)

    def run(self, are_ranks_ready: Callable[[], bool] = bool) -> None:
        """See RecoverableRank. Signals are for the workers."""
        for number in NUMBERS:
            forking.set_handler(number, signal.SIG_IGN)
        world = self.world
        layout = world.bcast_object(None, ROOT)
        rule = update_rules.get(self._param.type or "SGD")(self._param)  # which the workers know by now
        tables = make_tables(world, rule, self._param, self._how, self._n_workers, layout)
        control = world.split(0) or world
        tables.start()
        self._tables = tables
        command = np.empty(1, np.int64)
        while True:
            control.messages.recv(command, ROOT, TAG, timeout=math.inf)
            if command[0] == FINISH:
                with suppress(RankLost):  # workers have everything by now, and need this rank no longer
                    tables.close()
                return
            wanted = range(rule.n_histories) if command[0] == HISTORIES else [rule.n_histories]
            gather_parts([tables.histories(i) for i in wanted], 0, np.dtype(np.float32), world, ROOT)
            tables.server.check_disks()
            tables.server.rest()

    def abandon(self) -> None:
        if self._tables is not None:
            self._tables.server.abandon()

    def recovery_sources(self, left: Collection[int], communicator: Communicator) -> list[Part]:
        self._sources = RecoverySources(self._tables)
        return self._sources.parts(left, communicator) or []

    def recovery_values(self, part: Part) -> Given:
        return self._sources.of(part)

    def load(self, part: Part, given: Given | None, root: int, progress: Progress) -> None:
        """See RecoverableRank: a shard gets its part from the workers, when they begin."""
        n_elems, n_arrays = part.interval.stop - part.interval.start, 1 + progress.n_histories * part.is_whole
        arrays = [np.empty(n_elems, progress.dtype)] * n_arrays if given is None else [given[0], *given[1]]
        for array in arrays[:n_arrays]:
            self.world.bcast(array, root)


def make_tables(world: Communicator, rule: UpdateRule, param: Any, how: Consistency, n_workers: int,
                layout: Layout, memory: str = "host") -> Tables:
    """The tables of a run, on a worker or a server. Called by all ranks. ``memory``: where a worker's net has its
    parameters, "host" or "device"."""
    scale = 1 / how.n_summed(n_workers) / (param.iter_size if how.decays else 1)
    return Tables(world, how.slack, how.n_servers, layout,
                  lambda place: ShardRule(rule, param, place.segments, scale, how.decays), memory, how.keeps_copies)


ALONE = "1"
"""The ``-partitions`` with which no ranks share nets."""


class ServerRoles(Roles):
    """Workers, and servers that hold shards of the parameters; without ``-servers`` the workers hold them.
    ``consistency``: from the options to how the server keeps the parameters; raises UserError for options that do not
    go together."""

    def __init__(self, consistency: Callable[[Any], Consistency], *add_flags: Callable[[Flags], None]) -> None:
        super().__init__(*add_flags, add_servers_flag, add_bucket_flag, trains_parts=True)
        self._consistency = consistency

    def consistency(self, options: Any) -> Consistency:
        """How the server keeps the parameters, and whether ranks may be lost. Raises UserError."""
        return replace(self._consistency(options), keeps_copies=keeps_copies(options))

    def place(self, communicator: Communicator, options: Any) -> Role:
        how = self.consistency(options)
        if how.n_servers and getattr(options, "partitions", ALONE) != ALONE:
            raise UserError(f"-partitions {options.partitions} wants -servers 0: workers hold their parts' shards",
                            everywhere=True)
        ParameterServer(communicator, how.slack, how.n_servers)  # which checks the numbers
        if not how.n_servers:
            return Role.worker(communicator, options)
        return place_servers(communicator, options, how.n_servers)

    def options_for(self, options: Any, kinds: Sequence[str | None]) -> Any:
        """See Roles: who was a server is one again; where none is left, the workers hold the shards."""
        if options.servers and set(kinds) == {SERVER}:
            raise NothingLeft("all workers are lost; -resume auto goes on from the newest snapshot", everywhere=True)
        return Namespace(**vars(options) | {"servers": kinds.count(SERVER)})

    def serve(self, role: Role, param: Any, options: Any) -> int:
        self.server(role, param, options).run()
        return 0

    def server(self, role: Role, param: Any, options: Any) -> Server:
        return Server(role, param, self.consistency(options))
