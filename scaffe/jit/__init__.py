"""numba's compiler with a cache on disk that the ranks of a job may fill and read at the same time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, overload

import numba
from numba.core.compiler_lock import global_compiler_lock

from scaffe import forking
from scaffe.environment import BOUNDSCHECK
from scaffe.errors import UserError
from scaffe.jit.cache import DiskCache, missing

forking.hold(global_compiler_lock)  # another thread may be compiling
if getattr(numba.config, "DISABLE_JIT", False):
    raise UserError("NUMBA_DISABLE_JIT=1: expected it unset or 0, since kernels run compiled alone")


def checks_bounds() -> bool:
    """Whether compiled functions raise IndexError for an index outside its array."""
    return BOUNDSCHECK.get()


@overload
def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """As ``@compiled``."""


@overload
def compiled(function: None = None, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """As ``@compiled(inline="always")``."""


def compiled(function: Callable[..., Any] | None = None, borrows: bool = False, **options: Any) -> Any:
    """numba.njit(nogil=True, **options) of ``function``, compiled once a machine for each signature: a decorator.

    Args:
        function: one of a module.
        borrows: it makes no arrays, and does not count who has those that it is given: each view of one takes two
            atomic additions otherwise, for which threads wait on one another.
        options: numba's.

    With ``SCAFFE_BOUNDSCHECK=1`` an index outside its array raises IndexError; such code is kept apart.

    Raises:
        TypeError: the function is made inside another. Its sisters have the same name, by which numba links code from
            its cache, so that a caller might be given theirs.
    """
    if function is None:
        return partial(compiled, borrows=borrows, **options)
    if "<locals>" in function.__qualname__:
        raise TypeError(f"expected a module's function to compile, got {function.__qualname__}")
    if borrows:
        options["_nrt"] = False
    if checks_bounds():
        options["boundscheck"] = True
    dispatcher = numba.njit(nogil=True, **options)(function)
    if not missing():
        dispatcher._cache = DiskCache(function, options)
    return dispatcher
