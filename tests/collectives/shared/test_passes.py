"""Passes over shared memory, in which threads stand for a node's ranks, against numpy, for every dtype.

Each dtype's pass is compiled here, once: jobs find it in the cache; each of their ranks would compile it by itself.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from scaffe.collectives.planning.datatypes import DTYPES, OPS
from scaffe.collectives.shared import kernels, passes, schedule
from scaffe.collectives.shared.node import LIVENESS_INTERVAL, POLLS

N_RANKS, N_ELEMS = 3, 10_007
MOST_TIMEOUTS = 300  # of 0.2 s each


def passed(rank, epoch, memory, rows):
    """One rank's part in a pass that sums: how it ended."""
    tables = schedule.tables("allreduce", N_RANKS, N_ELEMS, 0, rows.itemsize, 0, N_ELEMS)
    addresses = np.array([row.ctypes.data for row in rows], np.int64)
    status = passes.TIMED_OUT
    for again in range(MOST_TIMEOUTS):
        if status == passes.TIMED_OUT:
            status = passes.run_pass(
                memory.ctypes.data, rank, N_RANKS, np.uint32(epoch), again > 0, 7, tables.chunks, tables.sources,
                tables.targets, addresses, kernels.block_for(rows.dtype), OPS.index("sum"), POLLS, LIVENESS_INTERVAL)
    return status


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_rank_has_the_sum_twice_in_a_row(dtype):
    memory = np.zeros(passes.channel_bytes(N_RANKS), np.uint8)
    rows = np.random.default_rng(5).integers(-9, 9, (N_RANKS, N_ELEMS)).astype(dtype)
    right = rows.sum(axis=0, dtype=dtype)
    with ThreadPoolExecutor(N_RANKS) as ranks:
        for epoch in (1, 2):
            ended = [ranks.submit(passed, rank, epoch, memory, rows) for rank in range(N_RANKS)]
            assert [one.result() for one in ended] == [passes.COMPLETE] * N_RANKS
            np.testing.assert_array_equal(rows, [right] * N_RANKS)
            right = right * right.dtype.type(N_RANKS)
