"""Methods that call MPI for an object which knows of losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def telling(method: Callable[P, T]) -> Callable[P, T]:
    """A method of an object with `losses`: where it fails by a loss it raises RankLost, and all ranks are told."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            found = args[0].losses.translated(error)  # type: ignore[attr-defined]
            if found is error:
                raise
            raise found from None
    return call
