"""Sums over ranks' memory, block by block, at memory speed."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.shared.atomics import libc_memcpy
from scaffe.collectives.shared.lanes import LANES, fold
from scaffe.jit import compiled

BLOCK_BYTES = 16384  # of the accumulator: in the first-level cache together with one input
MOST_ADDED = 4  # sources that one pass over a block adds to what is there: five streams at once


@compiled(inline="always")
def _fold_all(op: int, addresses: tuple[int, ...], target: int, n_elems: int, like: np.ndarray) -> None:
    item = like.itemsize
    whole = n_elems // LANES * LANES
    for offset in range(0, whole * item, LANES * item):
        fold(op, LANES, addresses, offset, target, like)
    for offset in range(whole * item, n_elems * item, item):
        fold(op, 1, addresses, offset, target, like)


@compiled
def combine(addresses: tuple[int, ...], target: int, n_elems: int, like: np.ndarray, op: int) -> None:
    """Computes target = ((a op b) op c) op d, elementwise; reading four or five streams at once reaches memory speed.

    Args:
        addresses: of two to five buffers.
        target: address; may be one of them.
        n_elems: length of each buffer.
        like: an array of their dtype (float16 as uint16, see `bits`).
        op: 0 sum, 1 max, 2 min, 3 prod.
    """
    if op == 0:
        _fold_all(0, addresses, target, n_elems, like)
    elif op == 1:
        _fold_all(1, addresses, target, n_elems, like)
    elif op == 2:
        _fold_all(2, addresses, target, n_elems, like)
    else:
        _fold_all(3, addresses, target, n_elems, like)


@compiled
def combine2(a: np.ndarray, b: np.ndarray, out: np.ndarray, op: int) -> None:
    """Computes out = a op b, elementwise; `out` may be one of them. Arrays of one dtype; op as in `combine`."""
    combine((np.int64(a.ctypes.data), np.int64(b.ctypes.data)), np.int64(out.ctypes.data), out.size, out, op)


@compiled
def combine_ranks(addresses: np.ndarray, sources: np.ndarray, targets: np.ndarray, start: int, end: int,
                  block: np.ndarray, op: int) -> None:
    """Writes the reduction of the sources' elements [start, end), in the order given, to all targets.

    A single target is written directly, several are copied from a block that stays in cache.

    Args:
        addresses: int64, shape (ranks,): where each rank's buffer begins.
        sources: int64, ranks that are read.
        targets: int64, ranks that are written.
        start: first element.
        end: one past the last element.
        block: scratch of the buffers' dtype; its length is the step.
        op: as in `combine`.
    """
    item, scratch = block.itemsize, np.int64(block.ctypes.data)
    for at in range(start, end, block.size):
        n = min(block.size, end - at)
        offset = at * item
        last = addresses[targets[0]] + offset if targets.size == 1 else scratch
        left, done = addresses[sources[0]] + offset, 1
        for passes in range(-(-(sources.size - 1) // MOST_ADDED), 0, -1):
            count = -(-(sources.size - done) // passes)  # as many in each: a stream alone is slow
            target = last if passes == 1 else scratch
            _add(left, addresses, sources[done : done + count], offset, target, n, block, op)
            left, done = scratch, done + count
        if targets.size > 1:
            for rank in targets:
                libc_memcpy(addresses[rank] + offset, scratch, n * item)


@compiled
def _add(left: int, addresses: np.ndarray, added: np.ndarray, offset: int, target: int, n_elems: int,
         block: np.ndarray, op: int) -> None:
    """Computes target = left op the one to four sources that are added, in their order."""
    n = added.size
    a, b = addresses[added[0]] + offset, addresses[added[min(1, n - 1)]] + offset
    c, d = addresses[added[min(2, n - 1)]] + offset, addresses[added[n - 1]] + offset
    if n == 1:
        combine((left, a), target, n_elems, block, op)
    elif n == 2:
        combine((left, a, b), target, n_elems, block, op)
    elif n == 3:
        combine((left, a, b, c), target, n_elems, block, op)
    else:
        combine((left, a, b, c, d), target, n_elems, block, op)


@compiled
def copy_range(addresses: np.ndarray, source: int, targets: np.ndarray, start_byte: int, end_byte: int) -> None:
    """Copies bytes [start_byte, end_byte) of rank `source`'s buffer to all `targets` (ranks); `addresses` as above."""
    for target in targets:
        libc_memcpy(addresses[target] + start_byte, addresses[source] + start_byte, end_byte - start_byte)


def block_for(dtype: np.dtype[Any]) -> np.ndarray:
    """Allocates the scratch block of `combine_ranks`.

    Args:
        dtype: of the buffers.

    Returns:
        BLOCK_BYTES of that dtype, float16 as uint16, uninitialised.
    """
    return bits(np.empty(BLOCK_BYTES // np.dtype(dtype).itemsize, dtype))


def bits(array: np.ndarray) -> np.ndarray:
    """Views an array as the kernels take it: float16 as uint16, any other dtype as it is."""
    return array.view(np.uint16) if array.dtype == np.float16 else array
