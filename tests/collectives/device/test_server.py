"""A parameter server whose workers' buffers are in device memory, on every rank: sums in the ranks' order."""

import numpy as np
import pytest

from scaffe.collectives.server import ParameterServer

N_ROWS, ROW_ELEMS, N_CLOCKS = 31, 19, 4


@pytest.mark.parametrize("keys", [range(N_ROWS), np.random.default_rng(4).permutation(N_ROWS)[:9]])
def test_slack_0_is_the_ranks_sum(communicator, cp, keys):
    server = ParameterServer(communicator)
    table = server.table("t", N_ROWS, ROW_ELEMS)
    batch = server.batch(table, keys, memory="device")
    server.start()
    expected = np.zeros((N_ROWS, ROW_ELEMS), np.float32)
    with cp.cuda.Stream(non_blocking=True):
        for clock in range(N_CLOCKS):
            seen = batch.read().copy()
            batch.post_read()
            batch.pre_update()[...] = cp.asarray(payload(communicator.rank, clock, len(keys)))
            batch.update()
            server.clock()
            np.testing.assert_array_equal(seen.get(), expected[keys])
            update = payload(0, clock, len(keys))
            for rank in range(1, communicator.n_ranks):
                update = update + payload(rank, clock, len(keys))
            expected[keys] += update
    server.close()
    np.testing.assert_array_equal(server.values(table), expected)


def test_the_stream_that_was_chosen_stays_chosen(communicator, cp):
    """Rows in another order go through kernels on the server's stream."""
    server = ParameterServer(communicator)
    batch = server.batch(server.table("t", N_ROWS, ROW_ELEMS), np.arange(N_ROWS)[::-1], memory="device")
    server.start()
    before, chosen = cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True)
    chosen.use()
    try:
        batch.read()
        batch.post_read()
        batch.pre_update()[...] = 1
        batch.update()
        server.clock()
        assert cp.cuda.get_current_stream().ptr == chosen.ptr
    finally:
        before.use()
    server.close()


def payload(rank, clock, n_keys):
    """Whole numbers, whose sums are exact in any order."""
    return np.random.default_rng([rank, clock]).integers(-99, 99, (n_keys, ROW_ELEMS)).astype(np.float32)
