"""Compiled functions that native threads run in parts, without the interpreter.

A thread that comes by Python waits for the interpreter's lock, and sleeps meanwhile: for as long as many kernels take.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import FunctionType
from typing import Any

from numba import types

from scaffe.jit import checks_bounds, compiled
from scaffe.jit.native import array_at
from scaffe.layers.kernels.cpu.parallel_code import N_FAILED, ON_STACK, lay_for
from scaffe.signal_mask import ASYNCHRONOUS, call_blocked


def can_be_parallel(kernel: Any) -> bool:
    """Whether native threads can run a function: a compiled one, which need not say where an index was wrong."""
    return hasattr(kernel, "py_func") and not checks_bounds()


def run(team: tuple[int, int], kernel: Any, n_parts: int, length: int, unit: int, n: int, *args: Any) -> None:
    """Call ``kernel(start, stop, *args)`` for the parts of [0, n), several at once.

    Args:
        team: the address of OpenMP's function that begins a region, and how many threads take part.
        kernel: a compiled function.
        n_parts: how many parts there are.
        length: how many units [0, n) has, of which each part gets as many as the others or one more.
        unit: elements of a unit; the last may have fewer.
        n: how many elements there are.
        args: further arguments, the same in every call.

    Raises:
        MemoryError: a part could not get memory.
    """
    _wrapper(kernel, 0)(ASYNCHRONOUS, *team, ON_STACK, n_parts, length, unit, n, *args)


def run_sliced(team: tuple[int, int], kernel: Any, n_parts: int, arrays: Sequence[Any], *args: Any) -> None:
    """Call ``kernel(*(a[start:stop] for a in arrays), *args)`` for parts of the arrays' first axis; see ``run``."""
    n = len(arrays[0])
    _wrapper(kernel, len(arrays))(ASYNCHRONOUS, *team, ON_STACK, n_parts, n, 1, n, *arrays, *args)


def lay_out(kernel: Any, n_sliced: int, place: int, n_parts: int, length: int, unit: int, n: int, *args: Any) -> int:
    """Write what ``run`` or ``run_sliced`` needs to memory, to be run many times on arrays that stay where they are.

    Args:
        n_sliced: so many of ``args`` are arrays of which a part gets its rows; 0: as ``run``.
        place: the address of ROOM_BYTES, aligned to 8: the region's head, then the arguments.

    Returns:
        the address of the C function that each thread is to call with ``place``, once the head's NEXT is 0.
    """
    entry: int = _wrapper(kernel, n_sliced)(ASYNCHRONOUS, 0, 0, place, n_parts, length, unit, n, *args)
    return entry


@cache
def _wrapper(kernel: Any, n_sliced: int) -> Any:
    """The compiled wrapper that runs a kernel in a parallel region: kept on disk beside it, under a name of its own."""
    of = kernel.py_func
    name = f"{of.__qualname__}.parallel_{n_sliced}"
    code = _region.__code__.replace(co_filename=of.__code__.co_filename, co_name=name, co_qualname=name)
    made = FunctionType(code, {**globals(), "kernel": kernel, "lay": lay_for(n_sliced)}, name)
    made.__module__, made.__qualname__ = of.__module__, name
    return compiled(made)


def _region(mask: int, begin: int, n_threads: int, room: int, n_parts: int, length: int, unit: int, n: int,
            *args: Any) -> int:
    """What a wrapper does; ``kernel`` and ``lay`` are its own globals."""
    entry, place = lay(kernel, room, n_parts, length, unit, n, args)  # type: ignore[name-defined]  # noqa: F821
    if room == ON_STACK:
        call_blocked(mask, begin, entry, place, n_threads, 0)
        if array_at(place, N_FAILED + 1, types.int64)[N_FAILED]:
            raise MemoryError("a kernel's working memory cannot be had")
    return entry  # type: ignore[no-any-return]
