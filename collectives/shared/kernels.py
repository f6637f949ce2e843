"""Sums over ranks' memory, block by block, at memory speed."""

import numpy as np

from scaffe.collectives.shared.atomics import libc_memcpy
from scaffe.collectives.shared.lanes import LANES, fold
from scaffe.jit import compiled

BLOCK_BYTES = 16384  # of the accumulator: in the first-level cache together with one input


@compiled(inline="always")
def _fold_all(op, addresses, target, n_elems, like):
    item = like.itemsize
    whole = n_elems // LANES * LANES
    for offset in range(0, whole * item, LANES * item):
        fold(op, LANES, addresses, offset, target, like)
    for offset in range(whole * item, n_elems * item, item):
        fold(op, 1, addresses, offset, target, like)


@compiled
def combine(addresses, target, n_elems, like, op):
    """Write ((a op b) op c) op d of the buffers at up to four `addresses` (a tuple) to `target`, itself one or not.

    Reading four streams at once is what reaches memory speed. like: an array of their dtype.
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
def combine2(a, b, out, op):
    """out = a op b, elementwise; `out` may be one of them."""
    combine((np.int64(a.ctypes.data), np.int64(b.ctypes.data)), np.int64(out.ctypes.data), out.size, out, op)


@compiled
def combine_ranks(addresses, sources, targets, start, end, block, op):
    """Write the reduction of the `sources` over elements [start, end), in the order given, to all `targets`.

    addresses: int64, each rank's buffer; sources, targets: ranks; block: scratch, its length is the step. A single
    target is written at once, several from the block, which stays in cache.
    """
    item, scratch = block.itemsize, np.int64(block.ctypes.data)
    for at in range(start, end, block.size):
        n = min(block.size, end - at)
        offset = at * item
        last = addresses[targets[0]] + offset if targets.size == 1 else scratch
        left, done = addresses[sources[0]] + offset, 1
        while done < sources.size:
            count = min(3, sources.size - done)
            a = addresses[sources[done]] + offset
            b = addresses[sources[done + count // 2]] + offset
            c = addresses[sources[done + count - 1]] + offset
            done += count
            target = last if done == sources.size else scratch
            if count == 1:
                combine((left, a), target, n, block, op)
            elif count == 2:
                combine((left, a, b), target, n, block, op)
            else:
                combine((left, a, b, c), target, n, block, op)
            left = scratch
        if targets.size > 1:
            for rank in targets:
                libc_memcpy(addresses[rank] + offset, scratch, n * item)


@compiled
def copy_range(addresses, source, targets, start_byte, end_byte):
    """Copy bytes [start_byte, end_byte) of the buffer of rank `source` to all `targets`."""
    for target in targets:
        libc_memcpy(addresses[target] + start_byte, addresses[source] + start_byte, end_byte - start_byte)


def block_for(dtype: np.dtype) -> np.ndarray:
    """The accumulator of `combine_ranks` for arrays of `dtype`; half precision is held in 16-bit words."""
    return bits(np.empty(BLOCK_BYTES // np.dtype(dtype).itemsize, dtype))


def bits(array: np.ndarray) -> np.ndarray:
    """`array` as the kernels take it: float16 as uint16, any other dtype as it is."""
    return array.view(np.uint16) if array.dtype == np.float16 else array
