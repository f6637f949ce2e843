"""Sums over several buffers against numpy, for every dtype, op and number of ranks."""

import numpy as np
import pytest

from scaffe.collectives.planning.datatypes import DTYPES, OPS
from scaffe.collectives.shared import kernels

UFUNCS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_combine_ranks(dtype, op):
    rng = np.random.default_rng(7)
    for n_ranks in (2, 3, 4, 5, 6, 9):
        buffers = [rng.integers(-4, 4, 20_011).astype(dtype) for _ in range(n_ranks)]
        if np.dtype(dtype).kind == "f":
            buffers = [(buffer * rng.choice([0.5, 0.75, 1.0], buffer.size)).astype(dtype) for buffer in buffers]
        right = buffers[0].copy()
        for buffer in buffers[1:]:
            UFUNCS[op](right, buffer, out=right)
        before = [buffer.copy() for buffer in buffers]
        addresses = np.array([buffer.ctypes.data for buffer in buffers], np.int64)
        block, sources = kernels.block_for(dtype), np.arange(n_ranks)
        for targets in ([0, n_ranks - 1], [0], [1], [n_ranks // 2], [n_ranks - 1]):
            for buffer, old in zip(buffers, before, strict=True):
                buffer[:] = old
            kernels.combine_ranks(addresses, sources, np.array(targets), 11, 20_000, block, OPS.index(op))
            for rank, (buffer, old) in enumerate(zip(buffers, before, strict=True)):
                assert np.array_equal(buffer[11:20_000], (right if rank in targets else old)[11:20_000])
                assert np.array_equal(buffer[:11], old[:11])
                assert np.array_equal(buffer[20_000:], old[20_000:])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_last_numbers_of_a_length_that_no_vector_divides(dtype, op):
    for n_elems in range(1, 40):
        a, b = (np.arange(n_elems) - 7).astype(dtype), (3 - np.arange(n_elems) / 2).astype(dtype)
        right = UFUNCS[op](a, b)
        kernels.combine2(*map(kernels.bits, (a, b, b)), OPS.index(op))
        assert np.array_equal(b, right)


def test_half_precision_rounds_after_every_operation_as_numpy_does():
    values = [np.array([number], np.float16) for number in (2048, 1, 1)]
    out = np.zeros(1, np.float16)
    kernels.combine(tuple(value.ctypes.data for value in values), out.ctypes.data, 1, kernels.bits(out), 0)
    assert out[0] == (values[0] + values[1]) + values[2] == 2048
