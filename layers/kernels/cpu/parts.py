"""Running a kernel on several threads, each on a part of the elements or rows, if there are enough of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from scaffe.layers.kernels.cpu.teams import Team, team
from scaffe.layers.kernels.cpu.words import words
from scaffe.layers.kernels.extents import expect_shape

LEAST_ELEMS = 1 << 16  # of a part: handing one over costs about as much as this many elements
LINE = 16  # columns of float32 that lie in one line of the cache

_teams: list[Team] = []  # at most one
_here = threading.local()


def set_parts(number: int) -> None:
    """Run kernels on so many threads from now on, including the caller's."""
    _teams[:] = [team(number)] if number > 1 else []


def n_threads() -> int:
    """How many threads kernels that this thread calls run on."""
    return _teams[0].n_threads if _teams and not hasattr(_here, "is_alone") else 1


def compute_alone() -> None:
    """From now on, kernels that this thread calls run on no other thread."""
    _here.is_alone = True


def in_parts(kernel: Callable[..., Any], arrays: tuple[np.ndarray, ...], *rest: Any) -> None:
    """Call ``kernel(*arrays, *rest)``, split along the arrays' first axis over several threads.

    Args:
        kernel: releases the interpreter's lock; treats the elements (or rows) independently of one another. It gets
            arrays of bfloat16 as their words.
        arrays: of equal shape.
        rest: further arguments, the same in every call.

    Raises:
        LayerError: arrays of different shapes.
    """
    expect_shape(arrays[0].shape, *arrays[1:])
    parts = [words(a) for a in arrays]
    in_ranges(len(arrays[0]), lambda start, stop: kernel(*(a[start:stop] for a in parts), *rest),
              arrays[0].size // LEAST_ELEMS)


def in_columns(kernel: Callable[..., Any], rows: np.ndarray, *rest: Any) -> None:
    """Call ``kernel(first, stop, rows, *rest)`` for ranges of columns, on several threads if there is enough to do.

    Sums over rows then come out alike on any number of threads.

    Args:
        kernel: releases the interpreter's lock; treats the columns independently of one another. Its range has no
            sign, or loops over it, which would have to look for negative indices, would not become vectors.
        rows: (rows, columns).
        rest: further arguments, the same in every call.
    """
    n = rows.shape[1]
    in_ranges(-(-n // LINE), lambda first, stop: kernel(
        np.uint64(LINE * first), np.uint64(min(LINE * stop, n)), rows, *rest), rows.size // LEAST_ELEMS)


def in_ranges(length: int, run: Callable[[int, int], Any], most: int | None = None) -> None:
    """Call ``run(start, stop)`` for ranges that make up [0, length), several at once on threads.

    Args:
        length: where the last range ends.
        run: releases the interpreter's lock.
        most: how many ranges there may be; no fewer than one is made. None: as many as threads.
    """
    n_parts = n_threads()
    n_parts = min(n_parts, length, n_parts if most is None else most)
    if n_parts <= 1:
        run(0, length)
        return
    cuts = [length * i // n_parts for i in range(n_parts + 1)]
    left = iter(list(pairwise(cuts)))  # of a list: threads may share it

    def take() -> None:
        for start, stop in left:
            run(start, stop)

    _teams[0].run(take)
