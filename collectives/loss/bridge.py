"""The communicator of a job's ranks and of newcomers: a transaction, after which either all ranks have it or none.

MPI_Comm_accept would do the same, but a rank that dies in it makes others hang or crash (Open MPI 5.0.11). Here ranks
are joined by MPI_Intercomm_create, through the one rank that has started the newcomers; it fails where one is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from scaffe.collectives.loss.losses import agreed

TAG = 2
SLOW_SECONDS = 30.0
"""MPI_Intercomm_merge takes some 20 ms. Where a rank dies in it, it may not return at all."""


def bridged(comm: Any, pair: Any, give_up: Callable[[str], None]) -> Any:
    """Joins a communicator's ranks and the newcomers. All of its ranks call it.

    Args:
        comm: mpi4py's, which returns errors.
        pair: the newcomers', on rank 0; None elsewhere.
        give_up: ends the job with a line, where MPI does not return.

    Returns:
        mpi4py's communicator of all, newcomers last; None, on all ranks alike, where a rank or a newcomer is lost.
    """
    from mpi4py import MPI

    inter, merged = None, None
    with suppress(MPI.Exception):
        inter = comm.Create_intercomm(0, pair if pair is not None else MPI.COMM_SELF, 1, TAG)
        inter.Set_errhandler(MPI.ERRORS_RETURN)
    if not agreed(comm, inter is not None and not inter.Get_failed().size) or inter is None:
        return None
    line = f"rank {comm.rank}: a rank was lost while new ones were joined, and MPI_Intercomm_merge does not return"
    timer = threading.Timer(SLOW_SECONDS, give_up, (line,))
    timer.daemon = True
    timer.start()
    with suppress(MPI.Exception):
        merged = inter.Merge(high=False)
        merged.Set_errhandler(MPI.ERRORS_RETURN)
    timer.cancel()
    if agreed(comm, merged is not None):
        return merged
    if merged is not None and not merged.Is_revoked():
        merged.Revoke()
    return None


def crossed(pair: Any) -> Any:
    """The newcomers' side of `bridged`; raises MPI's exception where the other side goes on without them.

    Args:
        pair: mpi4py communicator of the rank that has started them, and of them.
    """
    from mpi4py import MPI

    MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)
    inter = MPI.COMM_WORLD.Create_intercomm(0, pair, 0, TAG)
    inter.Set_errhandler(MPI.ERRORS_RETURN)
    merged = inter.Merge(high=True)
    merged.Set_errhandler(MPI.ERRORS_RETURN)
    return merged
