"""What strategies have in common whose parameters lie on a parameter server."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.server import ParameterServer
from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.layers.kernels.backend import is_device
from scaffe.log import info
from scaffe.training.fault_tolerance import state_sources as state_sources
from scaffe.training.fault_tolerance.recovery_state_machine import NothingLeft
from scaffe.training.histories import Part, gather_parts, updater_parts
from scaffe.training.loss_scale import needs_scale
from scaffe.training.parameter_server import server_rank
from scaffe.training.parameter_server.memory import EagerTables, MemoryAccounting
from scaffe.training.parameter_server.options import Consistency, StalenessStatistics, add_servers_flag, summary
from scaffe.training.parameter_server.recovery_sources import Remaining
from scaffe.training.parameter_server.stop_protocol import ReplicaStopProtocol, StopProtocol
from scaffe.training.parameter_server.tables import ROOT, Tables, layout_of
from scaffe.training.strategies.base import Strategy
from scaffe.training.strategies.buckets import Bucket, add_bucket_flag
from scaffe.training.strategies.replica import Replica
from scaffe.training.strategies.role import SERVER, Role
from scaffe.training.strategies.transfers import Buckets

ALONE = "1"
"""The ``-partitions`` with which no ranks share nets."""
COMPUTING = ("data", "forward", "backward")


class ServerStrategy(Strategy):
    """Places workers and servers, holds the tables, and brings workers in step where all need the same parameters.

    Subclasses say how the server keeps the parameters (``consistency``), and when to pull and to push.

    Attributes:
        buckets: the layers whose parameters are one table each.
        apart: which of these are updated early.
        tables: the parameters on the server, from ``begin`` on.
        statistics: what this worker has done.
    """

    tables: Tables
    tolerates_rank_loss = trains_parts = True
    in_step = False

    @classmethod
    def flags(cls, flags: Flags) -> None:
        """See Strategy."""
        add_servers_flag(flags)
        add_bucket_flag(flags)

    @classmethod
    def consistency(cls, options: Any) -> Consistency:
        """How the server keeps the parameters. Raises UserError for options that do not go together."""
        raise NotImplementedError

    @classmethod
    def _how(cls, options: Any) -> Consistency:
        """The consistency, and whether ranks may be lost."""
        return replace(cls.consistency(options), keeps_copies=state_sources.keeps_copies(options))

    @classmethod
    def place(cls, communicator: Communicator, options: Any) -> Role:
        """See Strategy: the last ``-servers`` ranks are servers."""
        how = cls._how(options)
        if how.n_servers and getattr(options, "partitions", ALONE) != ALONE:
            raise UserError(f"-partitions {options.partitions} wants -servers 0: workers hold their parts' shards",
                            everywhere=True)
        server = ParameterServer(communicator, how.slack, how.n_servers)
        if not how.n_servers:
            return Role.worker(communicator, options)
        ranks = communicator.split(0 if server.is_worker else 1) or communicator
        if server.is_worker:
            return Role.worker(ranks, options, communicator)
        return Role(SERVER, ranks.rank, server.n_workers, Share(), ranks, communicator)

    @classmethod
    def why_no_replacement(cls, options: Any) -> str:
        """See Strategy."""
        return f"with -servers {options.servers} lost ranks are not replaced; shrink goes on" * bool(options.servers)

    @classmethod
    def options_for(cls, options: Any, kinds: Sequence[str | None]) -> Any:
        """See Strategy: who was a server is one again; where none is left, the workers hold the shards."""
        if options.servers and set(kinds) == {SERVER}:
            raise NothingLeft("all workers are lost; -resume auto goes on from the newest snapshot", everywhere=True)
        return Namespace(**vars(options) | {"servers": kinds.count(SERVER)})

    @classmethod
    def serve(cls, role: Role, param: Any, options: Any) -> int:
        """See Strategy."""
        cls.server(role, param, options).run()
        return 0

    @classmethod
    def server(cls, role: Role, param: Any, options: Any) -> server_rank.Server:
        """See Strategy."""
        return server_rank.Server(role, param, cls._how(options))

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self._refuse()
        self.how = self._how(replica.options)
        self.buckets = Buckets(replica, ())
        self.apart = EagerTables(replica, self.buckets.all)
        self.statistics = StalenessStatistics()
        self._alone = Communicator.single()
        self._restored: dict[int, np.ndarray] = {}
        self._folder = ""  # of the file that has the tables; empty: they are in memory
        self._has_begun = False  # whether the shards have what there is
        self._frozen = self.buckets.frozen if replica.communicator.rank == ROOT else []

    def _refuse(self) -> None:
        replica, name = self.replica, replica_name(self)
        if needs_scale(replica.net.context.dtype):
            raise UserError(f"-strategy {name} scales no losses, as fp16 needs; bf16 does without", everywhere=True)

    @property
    def acts_between_layers(self) -> bool:
        """See Strategy: always, since the parameters are not the net's own."""
        return True

    @property
    def hook_points(self) -> Collection[int]:
        """See Strategy."""
        return self.buckets.by_first_layer.keys()

    @property
    def peers(self) -> Communicator:
        """See Strategy: nobody but those that share its net, between two calls of ``settle``."""
        return self._alone if self.replica.division is None else self.replica.division.sums

    def owned(self) -> Sequence[slice]:
        """See Strategy: frozen parameters, whose histories some rules change, on the root; the shards own the rest."""
        return self._frozen

    @property
    def kept_bytes(self) -> int:
        """See Strategy."""
        return self._resident.of_worker(is_device(self.replica.net.context.kernels))

    @property
    def server_bytes(self) -> int:
        """See Strategy."""
        return self._resident.of_server()

    @property
    def _resident(self) -> MemoryAccounting:
        return MemoryAccounting.of(self.replica, self.how, self.buckets.all, bool(self._folder))

    def take_eager(self, buckets: Sequence[Bucket]) -> None:
        """See Strategy."""
        self.apart.take(buckets)

    def keep_on_disk(self, folder: str) -> None:
        """See Strategy: the tables, with histories and what is pushed."""
        self._folder = folder

    def begin(self) -> None:
        """See Strategy."""
        replica, kernels = self.replica, self.replica.net.context.kernels
        names = [replica.net.nodes[bucket.first_layer].name for bucket in self.buckets.all]
        layout = layout_of(replica.updater, list(zip(names, (b.place for b in self.buckets.all), strict=True)),
                           self._folder)
        replica.world.bcast_object(layout, ROOT)  # to those without a net
        replica.net.params.bring()
        self.tables = server_rank.make_tables(replica.world, replica.updater.rule, replica.updater.param, self.how,
                                              replica.communicator.n_ranks, layout, kernels.PLACE)
        self._control = replica.world.split(0) if self.how.n_servers else None
        self.meeting = self._make_meeting()
        self.tables.start(kernels.to_host(replica.net.params.whole(kernels.to_host)), self._restored)
        self._has_begun = True
        self.tables.server.meanwhile = self.meeting.poll
        self._started = time.perf_counter()
        self.settle()
        self._restored = {}

    def _make_meeting(self) -> StopProtocol | ReplicaStopProtocol:
        workers = self.replica.communicator.split(0) or self.replica.communicator
        division = self.replica.division
        return StopProtocol(workers) if division is None else ReplicaStopProtocol(workers, division.sums)

    def before_iteration(self, rate: float, iteration: int) -> None:
        """See Strategy."""
        self.meeting.begin(iteration)

    def agree(self, level: int, iteration: int) -> int:
        """See Strategy: a worker waits for others only when something is to be agreed on."""
        return self.meeting.agree(level, iteration + 1)

    def after_backward(self, layer_index: int) -> None:
        """In the last pass, layers' gradients are complete once the replica's ranks have summed them."""
        if self.is_last_pass:
            for index in self.replica.intra_replica.completed(layer_index):
                self.completed(index)

    def gradients_ready(self) -> None:
        """See Strategy."""
        for index in self.replica.intra_replica.finish():
            self.completed(index)

    def completed(self, layer_index: int) -> None:
        """A layer's gradients are complete."""

    def apply(self, rate: float, iteration: int) -> None:
        """End this worker's iteration; the shards update."""
        replica = self.replica
        if self._frozen:
            replica.updater.update(rate, iteration, replica.communicator.n_ranks, sum_of_squares=0.0)
        self.tables.server.clock()

    def pull(self, number: int, newest: bool = False, prefetched: bool = False) -> None:
        """Copy a table into the net's parameters, and count the wait; see ``Tables.pull``."""
        name = self.tables.layout.places[number].name
        with self.replica.timers("communication") as span:
            staleness = self.tables.pull(number, self.replica.net.params.data, newest, prefetched)
            span.label = f"pull {name}, {staleness} clocks old"
        if not newest:
            self.statistics.pulled(staleness)

    def push(self, number: int, gradient: Any, factor: Any, rate: float, n_updates: float) -> None:
        """Hand a table's gradient to the shards, and count the wait for the buffer; see ``Tables.push``."""
        with self.replica.timers("communication", f"push {self.tables.layout.places[number].name}"):
            self.tables.push(number, gradient, factor, rate, n_updates)
        self.statistics.pushed()

    def settle(self) -> None:
        """See Strategy: every worker's updates of all iterations before this one, and no others, are in the
        parameters that all workers have when this returns. All workers call it before the same iteration."""
        replica = self.replica
        replica.net.params.bring()
        for number in range(len(self.tables.batches)):
            self.pull(number, newest=True)
        with replica.timers("communication"):
            for place in self.buckets.frozen:
                replica.communicator.bcast(replica.net.params.data[place], ROOT)
            replica.communicator.barrier()  # nobody pushes before everybody has pulled
            replica.intra_replica.settle()

    def parameters(self) -> np.ndarray:
        """See Strategy. With ``snapshot_diff`` the root's gradients become the shards' last steps."""
        data, updater = super().parameters(), self.replica.updater
        if updater.keeps_step:
            steps = self._gathered(server_rank.STEPS, [self.tables.histories(updater.rule.n_histories)])
            for whole in steps:  # on the root
                updater.params.diff[:] = self.replica.net.context.kernels.to_device(whole, updater.params.dtype)
        return data

    def histories(self) -> list[np.ndarray]:
        """See Strategy. The shards are idle: all workers are here, after ``settle``."""
        updater = self.replica.updater
        return self._gathered(server_rank.HISTORIES, [[*self.tables.histories(i), *updater_parts(updater, i)]
                                                      for i in range(updater.rule.n_histories)])

    def _gathered(self, command: int, own: Sequence[Sequence[Part]]) -> list[np.ndarray]:
        """On the root, whole arrays of what all ranks' shards hold."""
        replica, params = self.replica, self.replica.net.params
        self._command(command)
        found = gather_parts(own, params.n_elems, params.dtype, replica.world, ROOT, replica.updater.whole)
        self.tables.server.check_disks()  # a barrier, too
        self.tables.server.rest()
        return found

    def load_history(self, index: int, start: int, values: np.ndarray) -> None:
        """See Strategy."""
        super().load_history(index, start, values)
        if self.replica.communicator.rank == ROOT or state_sources.tolerates_rank_loss(self.replica.options):
            params = self.replica.net.params
            if index not in self._restored:
                self._restored[index] = self.replica.updater.whole(params.n_elems, params.dtype)
            self._restored[index][start:start + len(values)] = values

    def finish(self) -> None:
        """See Strategy."""
        replica, timers = self.replica, self.replica.timers
        aside = sum(timers.seconds.get(name, 0.0) for name in ("test", "snapshot"))
        self.statistics.elapsed = time.perf_counter() - self._started - aside
        self.statistics.computing = sum(timers.seconds.get(name, 0.0) for name in COMPUTING)
        self.statistics.waiting = timers.seconds.get("communication", 0.0)
        everyone = replica.communicator.allgather_objects(self.statistics)
        self._command(server_rank.FINISH)
        self.tables.server.meanwhile = None
        self.meeting.close()
        for line in summary(everyone, self.tables.close()):
            info(line)

    def abandon(self) -> None:
        """See Strategy."""
        if self._has_begun:
            self.tables.server.abandon()

    def recovery_sources(self, left: Collection[int], communicator: Communicator) -> list[state_sources.Part]:
        """See Strategy."""
        tables = self.tables if self._has_begun else None
        self._remaining = Remaining(self.replica.updater, tables, self._restored, self.buckets.frozen)
        return self._remaining.parts(left, communicator)

    def recovery_values(self, part: state_sources.Part) -> tuple[np.ndarray, list[np.ndarray]]:
        """See Strategy."""
        return self._remaining.of(part)

    def counters(self) -> dict[str, float]:
        """See Strategy: what this rank's shard has taken."""
        return dict(zip(("pulls", "pushes"), self.tables.server.taken or (), strict=False))

    def _command(self, command: int) -> None:
        """On worker 0: tell the ranks that are servers alone what all ranks do now."""
        if self._control is None or self._control.rank != ROOT:
            return
        for server in range(self.replica.communicator.n_ranks, self._control.n_ranks):
            self._control.messages.send(np.array([command]), server, server_rank.TAG)


def replica_name(strategy: Strategy) -> str:
    """The name under which a strategy was asked for."""
    return str(getattr(strategy.replica.options, "strategy", type(strategy).__name__))
