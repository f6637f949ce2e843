"""What ranks agree on before they train: whether a step succeeded on all, and how many threads each computes with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from scaffe import cores
from scaffe.collectives.communicator import Communicator
from scaffe.errors import UserError, is_expected, one_line

T = TypeVar("T")


def together(communicator: Communicator, step: Callable[[], T]) -> T:
    """Run a step that may fail, and let all ranks fail if one does. Called by all ranks.

    Args:
        communicator: the ranks that run the step.
        step: must not communicate, since a rank that fails in it would leave the others waiting.

    Returns:
        what the step returned on this rank.

    Raises:
        UserError: the step failed on some rank; every rank raises the message of the lowest such rank.
    """
    error, result = None, None
    try:
        result = step()
    except Exception as caught:
        if not is_expected(caught):
            raise
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
    """How many threads this rank computes with.

    Args:
        communicator: its ranks on one node divide the node's cores evenly, where nothing else says how many.
        wanted: a number of threads, or 0 for what the environment says, or this rank's share of the cores.
    """
    return wanted or cores.n_threads(communicator.node_n_ranks)
