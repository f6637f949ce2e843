"""Roles where parameters lie on a parameter server: the last ``-servers`` ranks have no net."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.server import ParameterServer
from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.training.fault_tolerance import state_sources
from scaffe.training.fault_tolerance.recovery_state_machine import NothingLeft
from scaffe.training.parameter_server import server_rank
from scaffe.training.parameter_server.options import Consistency, add_servers_flag
from scaffe.training.strategies.buckets import add_bucket_flag
from scaffe.training.strategies.roles import SERVER, Role, Roles, place_servers

ALONE = "1"
"""The ``-partitions`` with which no ranks share nets."""


class ServerRoles(Roles):
    """Workers, and servers that hold shards of the parameters; without ``-servers`` the workers hold them.

    Args:
        consistency: from the options to how the server keeps the parameters; raises UserError for options that do not
            go together.
        add_flags: see Roles.
    """

    def __init__(self, consistency: Callable[[Any], Consistency], *add_flags: Callable[[Flags], None]) -> None:
        super().__init__(*add_flags, add_servers_flag, add_bucket_flag, trains_parts=True)
        self._consistency = consistency

    def consistency(self, options: Any) -> Consistency:
        """How the server keeps the parameters, and whether ranks may be lost. Raises UserError."""
        return replace(self._consistency(options), keeps_copies=state_sources.keeps_copies(options))

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

    def server(self, role: Role, param: Any, options: Any) -> server_rank.Server:
        return server_rank.Server(role, param, self.consistency(options))
