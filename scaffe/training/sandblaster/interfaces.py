"""Sandblaster as strategies need it: its roles, where its state lies, and what happens when a rank is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import RankLost
from scaffe.errors import UserError
from scaffe.log import warning
from scaffe.training.fault_tolerance.replacement import tolerates_rank_loss
from scaffe.training.lbfgs.descent import most_vectors
from scaffe.training.lbfgs.objective import X, first_commands
from scaffe.training.parameter_server.options import add_servers_flag
from scaffe.training.sandblaster.rank import Layout, Rank, objective_of
from scaffe.training.sandblaster.replica import Loop
from scaffe.training.strategies.fault_tolerance import FaultTolerance
from scaffe.training.strategies.roles import Replica, Role, Roles, place_servers
from scaffe.training.strategies.state_placement import StatePlacement
from scaffe.training.strategies.transfers import ROOT


class SandblasterRoles(Roles):
    """Replicas, and ranks that hold shards of the optimizer's vectors; the first replica's rank has the coordinator."""

    def __init__(self) -> None:
        super().__init__(add_servers_flag, lambda flags: flags.flag(
            "deterministic", False, "L-BFGS: same bits on any number of ranks"), solver_type="LBFGS")

    def place(self, communicator: Communicator, options: Any) -> Role:
        n_servers = getattr(options, "servers", 0)
        if not n_servers and communicator.n_ranks > 1 and tolerates_rank_loss(options):
            raise UserError("-on_rank_loss shrink cannot be had without -servers: each rank holds a shard of L-BFGS's "
                            "vectors, which nobody else has", everywhere=True)
        if not n_servers:
            return Role.worker(communicator, options)
        if n_servers >= communicator.n_ranks:
            raise UserError(f"-servers {n_servers} leaves none of {communicator.n_ranks} rank(s) to train",
                            everywhere=True)
        return place_servers(communicator, options, n_servers)

    def serve(self, role: Role, param: Any, options: Any) -> int:
        rank = Rank(role.world, role.world.bcast_object(None, ROOT))
        rank.start()
        rank.serve()
        return 0


class SandblasterState(StatePlacement):
    """The shards own the parameters and L-BFGS's pairs of vectors; a replica has a copy of the parameters."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica, lambda rank: [])
        self._restored: dict[str, np.ndarray] = {}

    @property
    def n_servers(self) -> int:
        return int(self.replica.world.n_ranks - self.replica.communicator.n_ranks)

    @property
    def layout(self) -> Layout:
        replica, n_servers = self.replica, self.n_servers
        params, options = replica.net.params, replica.options
        return Layout(params.n_elems, params.dtype.name, replica.communicator.n_ranks if n_servers else 0,
                      n_servers or replica.world.n_ranks, getattr(options, "deterministic", False),
                      bool(n_servers) and tolerates_rank_loss(options))

    @property
    def kept_bytes(self) -> int:
        """See StatePlacement: sums of portions, those that are sent and those that follow, and a shard's vectors."""
        params = self.replica.net.params
        sums = 2 * params.n_elems * params.dtype.itemsize
        return sums if self.n_servers else sums + self._shard_bytes

    @property
    def server_bytes(self) -> int:
        return self._shard_bytes if self.n_servers else 0

    @property
    def _shard_bytes(self) -> int:
        """Of the longest shard's vectors, and of what each replica has sent to it, or is sent by it."""
        replica, layout, param = self.replica, self.layout, self.replica.updater.param
        intervals = [layout.blocks.interval(shard) for shard in range(layout.n_shards)]
        n_arrays = most_vectors(param.lbfgs_param.history, objective_of(param)) + 2 * replica.communicator.n_ranks
        n_elems = max(place.stop - place.start for place in intervals)
        return int(n_arrays * n_elems * replica.net.params.dtype.itemsize)

    def begin(self, rank: Rank, loop: Loop) -> None:
        """Reach the shards by these from now on. The root gives them the parameters, the decay, and restored pairs."""
        self._rank, self._loop = rank, loop
        if self.replica.communicator.rank == ROOT:
            self._fill()

    def _fill(self) -> None:
        param, updater = self.replica.updater.param, self.replica.updater
        self._loop.load(X, self.replica.net.params.data)
        segments = updater.segments(slice(0, self.replica.net.params.n_elems), 0)
        decay = tuple((s.start, s.stop, param.weight_decay * s.decay_mult) for s in segments)
        has_decay = param.weight_decay > 0
        self._rank.tell(first_commands(has_decay, has_decay and param.regularization_type == "L1", decay))
        pairs = self._rank.pairs
        for index in range(param.lbfgs_param.history):
            s, y = (self._restored.get(f"{kind}{index}") for kind in "sy")
            if s is None or y is None or not s.any():
                continue
            for name, vector in zip(pairs.next, (s, y), strict=True):
                self._loop.load(name, vector)
            pairs.restore()
        self._restored = {}

    def histories(self) -> list[np.ndarray]:
        """See StatePlacement: s and y of every pair, the oldest first."""
        if self.replica.communicator.rank != ROOT:
            return []
        n_elems, dtype = self.replica.net.params.n_elems, self.replica.net.params.dtype
        kept: Sequence[str] = [name for pair in self._rank.pairs.kept for name in pair]
        found = [self._loop.collect(name, np.zeros(n_elems, dtype)) for name in kept]
        missing = self.replica.updater.rule.n_histories - len(found)
        return found + [np.zeros(n_elems, dtype)] * missing

    def load_history(self, index: int, start: int, values: np.ndarray) -> None:
        params = self.replica.net.params
        whole = self._restored.setdefault(f"{'sy'[index % 2]}{index // 2}", np.zeros(params.n_elems, params.dtype))
        whole[start:start + len(values)] = values


class SandblasterFaultTolerance(FaultTolerance):
    """Replicas recover in place. The coordinator gives a lost replica's portions to others by itself.
    ``n_synchronized``: how often this replica has come to where all read the same parameters; counted by the
    strategy."""

    why_not_fault_tolerant = ""
    recovers_in_place = True
    n_synchronized = 0
    _is_on = False
    _lost: tuple[int, ...] = ()

    @classmethod
    def why_no_replacement(cls, options: Any) -> str:
        return "this strategy goes on with the ranks that are left (shrink), and takes nobody in"

    def begin(self) -> None:
        """Watch for losses from now on. Called by all replicas."""
        self._is_on, self._witness = True, self.replica.communicator.fault_tolerant_messages()

    def guard(self, call: Callable[[], None]) -> None:
        """Run something; what replicas do together after a synchronization in it is repeated if one is lost meanwhile.

        It counts if all that are left have come to its end: they agree on that, so that all do it again or none.
        Raises RankLost if a rank is lost where replicas had not synchronized."""
        while True:
            before, is_whole = self.n_synchronized, True
            try:
                call()
            except RankLost:
                if not self._is_on or self.n_synchronized == before:
                    raise
                is_whole = False
            if not self._is_on or self.n_synchronized == before or self._witness.agree(is_whole):
                return
            self._shrink()

    def hear(self, lost: tuple[int, ...]) -> None:
        """Go on without those that are lost; all that are left come here after the same phase, with the same ranks."""
        new = [rank for rank in lost if rank not in self._lost]
        if not new or not self._is_on:
            return
        self._lost = lost
        self._shrink()
        warning(f"Lost: rank {', '.join(map(str, new))}; {self.replica.communicator.n_ranks} replica(s) go on, and "
                "others compute the portions that it had not sent")

    def _shrink(self) -> None:
        left = self.replica.communicator.shrink()
        left.install_excepthook()
        self.replica.communicator = left
        self._witness = left.fault_tolerant_messages()
        self.on_shrink(left)
