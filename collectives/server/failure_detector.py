"""Finds out why a wait of the parameter server cannot succeed: a dead process, a failed shard, a late worker."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError, RankLost
from scaffe.collectives.server.tables.roles import Roles
from scaffe.collectives.shared.node import alive


class FailureDetector:
    """Checks, while this rank waits, whether the others still live and this rank's own threads still work."""

    def __init__(self, communicator: Communicator, roles: Roles) -> None:
        self._communicator, self._roles = communicator, roles
        self._node = communicator.topology.node_of_rank[communicator.rank]
        self._fault: BaseException | None = None
        self._pids: Sequence[int] = ()
        self._clocks = np.zeros(0, np.int64)

    def start(self, clocks: np.ndarray) -> None:
        """Exchanges process ids; every rank calls it, and returns when all have. ``clocks``: see ``Store``."""
        self._clocks, self._pids = clocks, self._communicator.allgather_objects(os.getpid())

    def check(self, what: str, waited: float) -> None:
        """Checks whether a wait can still succeed.

        Raises:
            RankLost: a rank is known to be lost, or a process of this node is dead.
            CommError: this rank's shard has failed, or the wait is longer than the communicator's patience.
        """
        ranks = self._communicator
        ranks.check_lost()
        if isinstance(self._fault, RankLost):
            raise self._fault
        if self._fault is not None:
            raise CommError(f"rank {ranks.rank}'s shard has failed: {self._fault}") from self._fault
        for other in ranks.topology.nodes[self._node]:
            if not alive(self._pids[other]):
                raise RankLost(ranks.rank, [other], f": its process {self._pids[other]} is dead, and {what} wants it")
        if waited > ranks.patience:
            slowest = self._roles.slowest(self._node, self._clocks.tolist())
            raise CommError(f"rank {ranks.rank} waited {waited:.0f} s for {what}; the slowest is {slowest}")

    def fail(self, error: BaseException) -> None:
        """Records the error that ended a thread of this rank; that thread calls it.

        The next ``check`` raises it. With several ranks the job is aborted too, because others wait for this shard.
        """
        self._fault = error
        ranks = self._communicator
        if ranks.n_ranks > 1 and not isinstance(error, RankLost):
            if not isinstance(error, CommError):
                traceback.print_exception(error)
            sys.stderr.write(f"rank {ranks.rank}: its shard of the parameter server has failed: {error}\n")
            ranks.abort(1)
