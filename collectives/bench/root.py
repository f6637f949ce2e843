"""Work that rank 0 alone does, such as writing files, whose errors all ranks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError

T = TypeVar("T")


def on_root(communicator: Communicator, step: Callable[[], T]) -> T | None:
    """Runs a step on rank 0. All ranks call it.

    Args:
        communicator: its rank 0 runs the step.
        step: sends no messages.

    Returns:
        The step's result on rank 0, None on the others.

    Raises:
        CommError: on all ranks, where the step raises it.
    """
    result, mistake = None, ""
    if communicator.rank == 0:
        try:
            result = step()
        except CommError as error:
            mistake = str(error)
    if mistake := communicator.bcast_object(mistake):
        raise CommError(mistake, everywhere=True)
    return result
