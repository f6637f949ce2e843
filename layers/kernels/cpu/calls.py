"""Calls of native code on arrays that stay where they are, made ready once: many run without the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident
from typing import Any

import numpy as np

from scaffe.layers.base.errors import LayerError
from scaffe.layers.kernels.cpu.onednn.library import refusal
from scaffe.layers.kernels.cpu.parts import n_threads
from scaffe.layers.kernels.cpu.teams import begin_region

HEAD = 3  # numbers of a table before a kernel's own: the next part, the parts, the length that they share


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
        error = refusal("primitive_execute", self._status)
        raise error if isinstance(error, MemoryError) else LayerError(str(error))


def _owner() -> tuple[int, int]:
    """The thread, whose working memory calls may use, and how many threads they run on."""
    return get_ident(), n_threads()


def in_native_parts(kernel: int, length: int, most: int, numbers: Sequence[int], keeps: Sequence[Any]) -> Calls:
    """A call that runs a kernel of ours on several threads, as ``in_ranges`` does.

    Args:
        kernel: the address of a function that gets the address of a table, and does parts until none is left.
        length: how much there is to do.
        most: how many parts there may be; no fewer than one is made.
        numbers: the kernel's own, which follow the first HEAD of the table.
        keeps: the arrays whose addresses these are.
    """
    n_parts = max(min(n_threads(), length, most), 1)
    table = np.array([0, n_parts, length, *numbers], np.int64)
    place = table.ctypes.data
    call = (kernel, place, 0, 0, 0) if n_parts == 1 else (begin_region(), kernel, place, n_threads(), 0)
    return Calls([(*call, place, 0)], [table, *keeps])
