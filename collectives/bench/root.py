"""What rank 0 does with files, for all ranks to fail together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError

T = TypeVar("T")


def on_root(communicator: Communicator, step: Callable[[], T]) -> T | None:
    """What a step without messages gives on rank 0, None on the others. Its CommError is raised on all ranks."""
    result, mistake = None, ""
    if communicator.rank == 0:
        try:
            result = step()
        except CommError as error:
            mistake = str(error)
    if mistake := communicator.bcast_object(mistake):
        raise CommError(mistake, everywhere=True)
    return result
