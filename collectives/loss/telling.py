"""Methods that call MPI for an object which knows of losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from scaffe.collectives.errors import CommError

P = ParamSpec("P")
T = TypeVar("T")


def telling(method: Callable[P, T]) -> Callable[P, T]:
    """A method of an object with `losses`: where it fails by a loss it raises RankLost, and all ranks are told.

    An error that all its ranks raise says whether these are only a part of the job's.
    """

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            losses = args[0].losses  # type: ignore[attr-defined]
            found = losses.translated(error)
            if found is error:
                if isinstance(error, CommError) and error.everywhere:
                    error.rank_in_part = losses.rank_in_part()
                raise
            raise found from None
    return call
