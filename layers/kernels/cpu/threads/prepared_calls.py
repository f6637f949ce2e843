"""Prepared native calls: kernels with fixed arguments, many of which run in a row without the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.kernels.cpu.arrays import as_bits
from scaffe.layers.kernels.cpu.onednn.library import refusal
from scaffe.layers.kernels.cpu.threads.parts import LEAST_ELEMS, count_parts, n_threads, native_threads
from scaffe.layers.kernels.extents import expect_shape


class NativeCalls:
    """PreparedCalls as rows that ``scaffe.signal_mask.call_in_a_row`` takes, and objects that must live as long as
    they."""

    def __init__(self, rows: Sequence[tuple[int, ...]], keeps: Sequence[Any]) -> None:
        self._rows, self._keeps = list(rows), list(keeps)
        self._table = np.array(self._rows, np.int64)
        self._owner = _owner()

    def __add__(self, other: NativeCalls) -> NativeCalls:
        return NativeCalls([*self._rows, *other._rows], [*self._keeps, *other._keeps])

    def __len__(self) -> int:
        return len(self._rows)

    def is_valid(self) -> bool:
        return self._owner == _owner()

    def run(self) -> int:
        from scaffe.signal_mask import call_in_a_row

        n_done, self._status = call_in_a_row(self._table)
        return n_done

    def raise_error(self) -> None:
        from scaffe.signal_mask import NOT_ZERO

        if self._status == NOT_ZERO:
            raise MemoryError("a kernel's working memory cannot be had")
        error = refusal("primitive_execute", self._status)
        raise error if isinstance(error, MemoryError) else LayerError(str(error))


def _owner() -> tuple[int, int]:
    """This thread, whose working arrays the calls use, and the number of threads they run on."""
    return get_ident(), n_threads()


def prepare_parts(kernel: Callable[..., Any], arrays: tuple[np.ndarray, ...], *rest: Any) -> NativeCalls | None:
    """Prepare ``in_parts`` on arrays that keep their memory; None if native code cannot call the kernel."""
    expect_shape(arrays[0].shape, *arrays[1:])
    length = len(arrays[0])
    n_parts = count_parts(length, arrays[0].size // LEAST_ELEMS)
    return _prepare_calls(kernel, len(arrays), n_parts, length, 1, length, *map(as_bits, arrays), *rest)


def prepare_units(kernel: Callable[..., Any], unit: int, n: int, most: int | None, *args: Any) -> NativeCalls | None:
    """Prepare ``in_units`` on arrays that keep their memory; None if native code cannot call the kernel."""
    length = -(-n // unit)
    return _prepare_calls(kernel, 0, count_parts(length, most), length, unit, n, *args)


def _prepare_calls(kernel: Callable[..., Any], n_sliced: int, n_parts: int, *args: Any) -> NativeCalls | None:
    from scaffe.layers.kernels.cpu.threads import parallel

    team = native_threads()
    if not parallel.can_be_parallel(kernel) or (n_parts > 1 and team is None):
        return None
    room = np.zeros(parallel.ROOM_BYTES // 8, np.int64)
    place = room.ctypes.data
    entry = parallel.lay_out(kernel, n_sliced, place, n_parts, *args)
    call = (entry, place, 0, 0, 0) if team is None or n_parts == 1 else (team[0], entry, place, team[1], 0)
    return NativeCalls([(*call, place + 8 * parallel.NEXT, 0, place + 8 * parallel.N_FAILED)], [room, args])
