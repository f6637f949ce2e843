"""A command as a job of one or many ranks: started together, failing together."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from scaffe import log
from scaffe.cli.main import fail, one_line
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook, report_and_abort
from scaffe.errors import UserError

T = TypeVar("T")
EXPECTED = (ValueError, OSError, MemoryError)  # what a user's mistake or a full machine raises


def run_job(body: Callable[[Communicator], int]) -> int:
    """Run a command's body on every rank of the job. Returns the exit code.

    An error that all ranks share is said once, by rank 0; one rank's own error is said by that rank and ends
    the job on all of them.
    """
    communicator = Communicator.world()
    if communicator.rank != 0:
        log.silence(True)
    install_excepthook(communicator)
    try:
        return body(communicator)
    except EXPECTED as error:
        if communicator.n_ranks > 1 and not getattr(error, "everywhere", False):
            report_and_abort(communicator, error)
        return fail(one_line(error), 1, error)


def together(communicator: Communicator, step: Callable[[], T]) -> T:
    """Do a step that sends no messages and may fail; if it fails on any rank, every rank raises the same UserError."""
    error, result = None, None
    try:
        result = step()
    except EXPECTED as caught:
        error = caught
    if communicator.n_ranks == 1:
        if error is not None:
            raise error
        return result  # type: ignore[return-value]
    messages = communicator.allgather_objects(one_line(error) if error is not None else None)
    failed = [(rank, message) for rank, message in enumerate(messages) if message is not None]
    if failed:
        rank, message = failed[0]
        raise UserError(message if rank == 0 else f"rank {rank}: {message}", everywhere=True) from error
    return result  # type: ignore[return-value]


def threads_per_rank(communicator: Communicator, wanted: int) -> int:
    """Compute threads for this rank: as many as wanted, or (0) this rank's share of the node's cores.

    A launcher that binds ranks to cores has shared them out already.
    """
    mine = len(os.sched_getaffinity(0))
    is_bound = mine < (os.cpu_count() or 1)
    return wanted or (mine if is_bound else max(mine // communicator.node_n_ranks, 1))
