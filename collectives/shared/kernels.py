"""Sums over ranks' memory, block by block, at memory speed."""

import numpy as np
from numba import carray, njit

from .atomics import as_pointer, libc_memcpy, narrow, widen

BLOCK_BYTES = 16384  # of the accumulator: in the first-level cache together with one input


@njit(cache=True, nogil=True, inline="always")
def apply(op, x, y):
    """x `op` y; op: 0 sum, 1 max, 2 min, 3 prod (the order of datatypes.OPS). LLVM takes the choice out of loops."""
    left, right = widen(x), widen(y)
    if op == 0:
        return narrow(left + right, x)
    if op == 1:
        return x if left >= right else y
    if op == 2:
        return x if left <= right else y
    return narrow(left * right, x)


@njit(cache=True, nogil=True)
def combine2(a, b, out, op):
    """out = a op b, elementwise."""
    for i in range(out.size):
        out[i] = apply(op, a[i], b[i])


@njit(cache=True, nogil=True)
def combine3(a, b, c, out, op):
    """out = (a op b) op c, elementwise."""
    for i in range(out.size):
        out[i] = apply(op, apply(op, a[i], b[i]), c[i])


@njit(cache=True, nogil=True)
def combine4(a, b, c, d, out, op):
    """out = ((a op b) op c) op d, elementwise. Reading four streams at once is what reaches memory speed."""
    for i in range(out.size):
        out[i] = apply(op, apply(op, apply(op, a[i], b[i]), c[i]), d[i])


@njit(cache=True, nogil=True)
def combine_ranks(addresses, sources, targets, start, end, block, op):
    """Write the reduction of the `sources` over elements [start, end), in the order given, to all `targets`.

    addresses: int64, each rank's buffer; sources, targets: ranks; block: scratch, its length is the step.
    """
    item = block.itemsize
    for at in range(start, end, block.size):
        n = min(block.size, end - at)
        out = block[:n]
        offset = at * item
        left, done = carray(as_pointer(addresses[sources[0]] + offset, block), n), 1
        while done < sources.size:
            count = min(3, sources.size - done)
            a = carray(as_pointer(addresses[sources[done]] + offset, block), n)
            b = carray(as_pointer(addresses[sources[done + count // 2]] + offset, block), n)
            c = carray(as_pointer(addresses[sources[done + count - 1]] + offset, block), n)
            if count == 1:
                combine2(left, a, out, op)
            elif count == 2:
                combine3(left, a, b, out, op)
            else:
                combine4(left, a, b, c, out, op)
            left, done = out, done + count
        for target in targets:
            libc_memcpy(addresses[target] + offset, block.ctypes.data, n * item)


@njit(cache=True, nogil=True)
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
