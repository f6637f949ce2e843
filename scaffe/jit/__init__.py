"""numba's compiler, with a disk cache that the ranks of a job may fill and read at the same time."""

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
    """Decorator: numba.njit(nogil=True, **options) of ``function``, cached on disk for each signature.

    With ``SCAFFE_BOUNDSCHECK=1`` an index outside its array raises IndexError; such code is cached apart.

    Args:
        function: a function at a module's top level.
        borrows: the function allocates no arrays, and its code does not count references to those it is given. Each
            view would otherwise take two atomic additions, on which threads wait for each other.
        options: numba's.

    Raises:
        TypeError: the function is nested in another. numba links cached code by name, so a caller might get the code
            of another function of that name.
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
