"""Calls of native code on arrays that stay where they are, made ready once: many run without the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

import numpy as np

from scaffe.layers.base.errors import LayerError
from scaffe.layers.kernels.cpu.arrays import words
from scaffe.layers.kernels.cpu.onednn.library import refusal
from scaffe.layers.kernels.cpu.threads.parts import LEAST_ELEMS, count_parts, n_threads, native_team
from scaffe.layers.kernels.extents import expect_shape


class Calls:
    """Some calls in order; ``a + b`` are those of both. See ``ReadyCalls``.

    Args:
        rows: as ``scaffe.signal_mask.call_in_a_row`` takes them.
        keeps: what must live as long as the calls.
    """

    def __init__(self, rows: Sequence[tuple[int, ...]], keeps: Sequence[Any]) -> None:
        self._rows, self._keeps = list(rows), list(keeps)
        self._table = np.array(self._rows, np.int64)
        self._owner = _owner()

    def __add__(self, other: Calls) -> Calls:
        return Calls([*self._rows, *other._rows], [*self._keeps, *other._keeps])

    def __len__(self) -> int:
        return len(self._rows)

    def suit(self) -> bool:
        """See ReadyCalls."""
        return self._owner == _owner()

    def run(self) -> int:
        """See ReadyCalls."""
        from scaffe.signal_mask import call_in_a_row

        n_done, self._status = call_in_a_row(self._table)
        return n_done

    def fail(self) -> None:
        """See ReadyCalls."""
        from scaffe.signal_mask import NOT_ZERO

        if self._status == NOT_ZERO:
            raise MemoryError("a kernel's working memory cannot be had")
        error = refusal("primitive_execute", self._status)
        raise error if isinstance(error, MemoryError) else LayerError(str(error))


def _owner() -> tuple[int, int]:
    """The thread, whose working memory calls may use, and how many threads they run on."""
    return get_ident(), n_threads()


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
    from scaffe.layers.kernels.cpu.threads import parallel

    team = native_team()
    if not parallel.can_be_parallel(kernel) or (n_parts > 1 and team is None):
        return None
    room = np.zeros(parallel.ROOM_BYTES // 8, np.int64)
    place = room.ctypes.data
    entry = parallel.lay_out(kernel, n_sliced, place, n_parts, *args)
    call = (entry, place, 0, 0, 0) if team is None or n_parts == 1 else (team[0], entry, place, team[1], 0)
    return Calls([(*call, place + 8 * parallel.NEXT, 0, place + 8 * parallel.N_FAILED)], [room, args])
