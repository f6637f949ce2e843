"""Roles of Sandblaster: the last ``-servers`` ranks hold shards alone; without them every rank holds one."""

from __future__ import annotations

from typing import Any

from scaffe.collectives.communicator import Communicator
from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.training.fault_tolerance.state_sources import tolerates_rank_loss
from scaffe.training.parameter_server.options import add_servers_flag
from scaffe.training.sandblaster.rank import Rank
from scaffe.training.strategies.roles import Role, Roles, place_servers
from scaffe.training.strategies.transfers import ROOT


def add_deterministic_flag(flags: Flags) -> None:
    """Add ``-deterministic``."""
    flags.flag("deterministic", False, "L-BFGS: same bits on any number of ranks")


class SandblasterRoles(Roles):
    """Replicas, and ranks that hold shards of the optimizer's vectors; the first replica's rank has the coordinator."""

    def __init__(self) -> None:
        super().__init__(add_servers_flag, add_deterministic_flag, solver_type="LBFGS")

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
