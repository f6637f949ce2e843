"""Local tables: a worker's own rows against numpy, what no_fetch and no_save leave out, and what is refused."""

import numpy as np
import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.server import ParameterServer

N_ROWS, ROW_ELEMS = 11, 7
KEYS = {"slice": slice(2, 9), "scattered": [9, 0, 1, 5], "all": range(N_ROWS)}


@pytest.fixture
def server():
    made = ParameterServer(Communicator.single(), slack=0)
    yield made
    if made._running is not None:
        made.close()


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_are_what_was_last_saved(server, kind, dtype):
    table = server.table("l", N_ROWS, ROW_ELEMS, dtype=dtype, local=True)
    keys = list(range(N_ROWS))[KEYS[kind]] if kind == "slice" else list(KEYS[kind])
    some, everything = server.local_batch(table, KEYS[kind]), server.local_batch(table, range(N_ROWS))
    server.start()
    expected, rng = np.zeros((N_ROWS, ROW_ELEMS), dtype), np.random.default_rng(3)
    for _ in range(3):
        for _ in range(2):  # any number of times in an iteration
            change = rng.standard_normal((len(keys), ROW_ELEMS)).astype(dtype)
            some.pre_update()[...] += change
            some.update()
            expected[keys] += change
            np.testing.assert_array_equal(some.read(), expected[keys])
            some.post_read()
            np.testing.assert_array_equal(everything.read(), expected)
            everything.post_read()
        some.pre_update(no_fetch=True)[...] = change
        some.update()
        expected[keys] = change
        np.testing.assert_array_equal(server.values(table), expected)
        server.clock()
    assert server.staleness == []


def test_no_fetch_and_no_save_move_nothing(server):
    table = server.table("l", N_ROWS, ROW_ELEMS, local=True)
    batch = server.local_batch(table, [3, 1])
    server.start()
    batch.pre_update(no_fetch=True)[...] = 5
    batch.update(no_save=True)
    assert not server.values(table).any()
    np.testing.assert_array_equal(batch.pre_update(no_fetch=True), np.full((2, ROW_ELEMS), 5))
    batch.update()
    assert (server.values(table)[[1, 3]] == 5).all()


def test_a_slice_is_the_table_s_own_memory(server):
    batch = server.local_batch(server.table("l", N_ROWS, ROW_ELEMS, local=True), slice(2, 9))
    server.start()
    changed = batch.pre_update()
    batch.update()
    assert np.shares_memory(batch.read(), changed)
    assert not batch._rows.buffer.flags.owndata
    batch.post_read()


def test_no_message_is_sent(server):
    batch = server.local_batch(server.table("l", N_ROWS, ROW_ELEMS, local=True), [3, 1])
    server.start()
    for mailbox in server._running.store.shard_mail.values():
        mailbox.put = None
    for _ in range(3):
        batch.pre_update()
        batch.update()
        batch.read(), batch.post_read()
    del server._running.store.shard_mail[0].put


def test_mistakes(server):
    shared, local = server.table("s", 4, 2), server.table("l", 4, 2, local=True)
    for call, words in ((lambda: server.batch(local, [0]), "has no table 'l' that is shared"),
                        (lambda: server.local_batch(shared, [0]), "has no table 's' that is local"),
                        (lambda: server.table("l", 1, 1), "declares table 'l' twice"),
                        (lambda: server.table("s", 1, 1, local=True), "declares table 's' twice"),
                        (lambda: server.table("m", 1, 1, object(), local=True), "local table 'm' with a rule"),
                        (lambda: server.local_batch(local, [0, 4]), "table 'l' has no row 4; its keys are 0 to 3")):
        with pytest.raises(CommError, match=words):
            call()
    batch = server.local_batch(local, [2, 0])
    with pytest.raises(CommError, match="a batch of table 'l' is used before start"):
        batch.read()
    server.start()
    with pytest.raises(CommError, match="declares a batch after start"):
        server.local_batch(local, [0])
    name = "local batch 0 of table 'l'"
    batch.read()
    for call, words in ((batch.read, f"reads {name} again before post_read"),
                        (batch.pre_update, f"pre_update of {name} before post_read gives its buffer back"),
                        (batch.update, f"update of {name} without pre_update"),
                        (server.clock, f"ends an iteration while it reads {name}")):
        with pytest.raises(CommError, match=f"^worker 0 {words}"):
            call()
    batch.post_read()
    batch.pre_update()
    for call, words in ((batch.pre_update, f"pre_update of {name} again before update"),
                        (batch.read, f"reads {name} before update gives its buffer back"),
                        (batch.post_read, f"post_read of {name}, which it does not read"),
                        (server.clock, f"ends an iteration with the update of {name} open")):
        with pytest.raises(CommError, match=f"^worker 0 {words}"):
            call()
    batch.update()
