"""Running a kernel on several threads, each on a part of the elements or rows, if there are enough of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from scaffe.layers.kernels.cpu.words import words
from scaffe.layers.kernels.extents import expect_shape

LEAST_ELEMS = 1 << 16  # of a part: handing one over costs about as much as this many elements
LINE = 16  # columns of float32 that lie in one line of the cache

_pools: list[tuple[int, ThreadPoolExecutor]] = []  # at most one: how many threads with the caller's, and the others


def set_parts(n_threads: int) -> None:
    """Run kernels on n_threads threads from now on, including the caller's."""
    for _, pool in _pools:
        pool.shutdown()
    _pools.clear()
    if n_threads > 1:
        _pools.append((n_threads, ThreadPoolExecutor(n_threads - 1, "kernel")))


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
    n_threads, pool = _pools[0] if _pools else (1, None)
    n_parts = min(n_threads, length, n_threads if most is None else most)
    if pool is None or n_parts <= 1:
        run(0, length)
        return
    cuts = [length * i // n_parts for i in range(n_parts + 1)]
    (start, stop), *others = pairwise(cuts)
    running = [pool.submit(run, *other) for other in others]
    run(start, stop)
    for future in running:
        future.result()
