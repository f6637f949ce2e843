"""What a worker may not do, in one line each; a rank by itself whose rule fails."""

import math
import time

import numpy as np
import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.server import ParameterServer


def started(slack=0, rule=None):
    server = ParameterServer(Communicator.single(), slack)
    batch = server.batch(server.table("t", 4, 2, rule), [1, 2])
    server.start()
    return server, batch


def refused(words):
    return pytest.raises(CommError, match=f"^worker 0 {words}")


def test_operations_out_of_order():
    server, batch = started()
    with refused("update of batch 0 of table 't' without pre_update"):
        batch.update()
    with refused("post_read of batch 0 of table 't', which it does not read"):
        batch.post_read()
    batch.read()
    with refused("reads batch 0 of table 't' again before post_read"):
        batch.read()
    with refused("ends an iteration while it reads batch 0 of table 't'"):
        server.clock()
    batch.pre_update()
    with refused("pre_update of batch 0 of table 't' again"):
        batch.pre_update()
    with refused("updates batch 0 of table 't' while it reads it"):
        batch.update()
    batch.post_read()
    with refused("ends an iteration with the update of batch 0 of table 't' open"):
        server.clock()
    batch.update()
    with refused("updates batch 0 of table 't' twice in one iteration"):
        batch.pre_update()
    with refused("reads batch 0 of table 't' after it has updated it in the same iteration"):
        batch.read()
    server.leave()
    for call, word in ((batch.read, "reads"), (batch.pre_update, "updates")):
        with refused(f"{word} after it has left"):
            call()
    server.close()


def test_with_slack_a_worker_reads_what_it_has_updated():
    server, batch = started(slack=1)
    for _ in range(3):
        before = batch.read().copy()
        batch.post_read()
        batch.pre_update()[:] = 5
        batch.update()
        server.clock()
        np.testing.assert_array_equal(batch.read(), before + 5)
        batch.post_read()
    server.close()


def test_declarations_and_the_start():
    server, _ = started()
    table = next(iter(server._rules))
    for call, words in ((lambda: server.table("u", 1, 1), "declares a table after start"),
                        (lambda: server.batch(table, [0]), "declares a batch after start"),
                        (server.start, "starts twice")):
        with pytest.raises(CommError, match=words):
            call()
    server.close()
    fresh = ParameterServer(Communicator.single())
    fresh.table("t", 1, 1)
    for call, words in ((lambda: fresh.table("t", 2, 2), "declares table 't' twice"),
                        (lambda: fresh.batch(table, [0]), "has no table 't'"),
                        (fresh.clock, "before start"), (fresh.close, "before start"),
                        (lambda: fresh.start({"u": [1]}), "values are given for table 'u'; the tables are t")):
        with pytest.raises(CommError, match=words):
            call()


class Broken:
    n_histories = 0

    def step(self, values, update, histories, first, settings):
        raise ZeroDivisionError("no rule at all")


def test_a_rule_that_fails_is_told_where_it_is_waited_for():
    server, batch = started(rule=Broken())
    batch.pre_update()
    batch.update()
    server.clock()
    with pytest.raises(CommError, match="rank 0's shard has failed: no rule at all"):
        batch.read()


def test_more_memory_than_there_is_is_refused_before_any_is_taken():
    server = ParameterServer(Communicator.single())
    server.table("t", 1 << 40, 64)
    said = r"no memory for a parameter server of \d+ bytes: .* leaves \d+ bytes on this node"
    with pytest.raises(CommError, match=said):
        server.start()


def test_rows_that_were_asked_for_are_waited_for_no_more_and_an_update_is_applied_in_the_background():
    server, batch = started(slack=math.inf)
    assert not batch.is_ready()  # nothing has been asked
    batch.prefetch()
    for _ in range(3):  # the answer may come in a later iteration
        server.clock()
    wait_for(batch.is_ready)
    np.testing.assert_array_equal(batch.read(prefetched=True), 0)
    batch.post_read()
    batch.pre_update()[:] = 2
    batch.update()
    wait_for(batch.is_free)
    server.clock()
    np.testing.assert_array_equal(batch.read(newest=True), 2)
    batch.post_read()
    server.close()


def wait_for(is_there, seconds=30):
    end = time.monotonic() + seconds
    while not is_there():
        assert time.monotonic() < end


def test_histories_are_those_of_the_shard():
    class Sum:
        n_histories = 1

        def step(self, values, update, histories, first, settings):
            histories[0] += update

    server, batch = started(rule=Sum())
    start, (history,) = server.histories(batch.index.table)
    assert (start, history.tolist()) == (0, [0] * 8)
    history[:] = 10
    batch.pre_update()[:] = [[1, 2], [3, 4]]
    batch.update()
    server.close()
    assert server.histories(batch.index.table)[1][0].tolist() == [10, 10, 11, 12, 13, 14, 10, 10]


@pytest.mark.parametrize("values", [["a"] * 8, np.ones(8, complex), [None] * 8, [[1, 2], [3]]])
def test_values_that_are_no_numbers(values):
    server = ParameterServer(Communicator.single())
    server.table("t", 4, 2)
    with pytest.raises(CommError, match="values of table 't': expected numbers"):
        server.start({"t": values})
