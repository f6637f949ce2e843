"""Running a kernel on several threads, each on a part of the elements or rows, if there are enough of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from scaffe.layers.kernels.extents import expect_shape

LEAST_ELEMS = 1 << 16  # of a part: handing one over costs about as much as this many elements

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
        kernel: releases the interpreter's lock; treats the elements (or rows) independently of one another.
        arrays: of equal shape.
        rest: further arguments, the same in every call.

    Raises:
        LayerError: arrays of different shapes.
    """
    expect_shape(arrays[0].shape, *arrays[1:])
    n_threads, pool = _pools[0] if _pools else (1, None)
    length = len(arrays[0])
    n_parts = min(n_threads, arrays[0].size // LEAST_ELEMS, length)
    if pool is None or n_parts <= 1:
        kernel(*arrays, *rest)
        return
    cuts = [length * i // n_parts for i in range(n_parts + 1)]
    parts = [[a[start:end] for a in arrays] for start, end in pairwise(cuts)]
    running = [pool.submit(kernel, *part, *rest) for part in parts[1:]]
    kernel(*parts[0], *rest)
    for future in running:
        future.result()
