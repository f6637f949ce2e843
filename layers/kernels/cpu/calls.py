"""Calls of native code on arrays that stay where they are, made ready once: many run without the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident
from typing import Any

import numpy as np

from scaffe.layers.base.errors import LayerError
from scaffe.layers.kernels.cpu.onednn.library import refusal
from scaffe.layers.kernels.cpu.parts import n_threads


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
