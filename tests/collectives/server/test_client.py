"""What a worker may not do, in one line each; a rank by itself whose rule fails."""

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
    with refused("update of batch 0 without pre_update"):
        batch.update()
    with refused("post_read of batch 0, which it does not read"):
        batch.post_read()
    batch.read()
    with refused("reads batch 0 again before post_read"):
        batch.read()
    with refused("ends an iteration while it reads batch 0"):
        server.clock()
    batch.pre_update()
    with refused("pre_update of batch 0 again"):
        batch.pre_update()
    with refused("updates batch 0 while it reads it"):
        batch.update()
    batch.post_read()
    with refused("ends an iteration with batch 0's update open"):
        server.clock()
    batch.update()
    with refused("updates batch 0 twice in one iteration"):
        batch.pre_update()
    with refused("reads batch 0 after it has updated it in the same iteration"):
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
