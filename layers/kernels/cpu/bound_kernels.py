"""Compiled kernels as calls made ready once, run in parts as ``in_units`` and ``in_parts`` run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scaffe.layers.kernels.cpu.calls import Calls
from scaffe.layers.kernels.cpu.parts import LEAST_ELEMS, count_parts, native_team
from scaffe.layers.kernels.cpu.words import words
from scaffe.layers.kernels.extents import expect_shape


def bind_parts(kernel: Callable[..., Any], arrays: tuple[np.ndarray, ...], *rest: Any) -> Calls | None:
    """``in_parts`` on arrays that stay where they are; None: native code cannot call the kernel."""
    expect_shape(arrays[0].shape, *arrays[1:])
    length = len(arrays[0])
    n_parts = count_parts(length, arrays[0].size // LEAST_ELEMS)
    return _bind(kernel, len(arrays), n_parts, length, 1, length, *map(words, arrays), *rest)


def bind_units(kernel: Callable[..., Any], unit: int, n: int, most: int | None, *args: Any) -> Calls | None:
    """``in_units`` on arrays that stay where they are; None: native code cannot call the kernel."""
    length = -(-n // unit)
    return _bind(kernel, 0, count_parts(length, most), length, unit, n, *args)


def _bind(kernel: Callable[..., Any], n_sliced: int, n_parts: int, *args: Any) -> Calls | None:
    from scaffe.layers.kernels.cpu import parallel, parallel_code

    team = native_team()
    if not parallel.can_be_parallel(kernel) or (n_parts > 1 and team is None):
        return None
    room = np.zeros(parallel_code.ROOM_BYTES // 8, np.int64)
    place = room.ctypes.data
    entry = parallel.lay_out(kernel, n_sliced, place, n_parts, *args)
    call = (entry, place, 0, 0, 0) if team is None or n_parts == 1 else (team[0], entry, place, team[1], 0)
    return Calls([(*call, place + 8 * parallel_code.NEXT, 0, place + 8 * parallel_code.N_FAILED)], [room, args])
