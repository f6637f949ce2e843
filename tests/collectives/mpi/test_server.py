"""The parameter server on every rank: values against numpy, in the order that slack 0 promises; what it refuses."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from scaffe.collectives import CommError
from scaffe.collectives.server import ParameterServer

N_ROWS, ROW_ELEMS, N_CLOCKS = 37, 13, 5


class Momentum:
    """h <- 0.5 h + rate * u;  v <- v - h, and where the interval lies is checked by what lies there."""

    n_histories = 1

    def step(self, values, update, histories, first, settings):
        histories[0][:] = 0.5 * histories[0] + np.float32(settings[0]) * update
        values -= histories[0]


@pytest.fixture
def node(communicator):
    if communicator.topology.n_nodes > 1:
        pytest.skip("a parameter server needs its ranks on one node")
    return communicator


def payload(worker, clock, batch, shape, whole=False):
    """Differs for every worker, iteration, batch and element; ``whole``: numbers whose sums are exact."""
    rng = np.random.default_rng([worker, clock, batch, 7])
    return (rng.integers(-99, 99, shape) if whole else rng.standard_normal(shape)).astype(np.float32)


def keys_of(worker):
    """Batch 0: all rows, the same for all; 1: some rows, scattered, the worker's own; 2: a slice."""
    own = np.random.default_rng([worker, 3]).permutation(N_ROWS)[: 5 + worker]
    return [range(N_ROWS), own, range(worker, worker + 9)]


def initial():
    return np.arange(N_ROWS * ROW_ELEMS, dtype=np.float32).reshape(N_ROWS, ROW_ELEMS) / 8


def build(node, slack, rule=None, servers=0):
    """A server with tables "a" (batches 1 and 2, which share rows) and "b" (batch 0)."""
    server = ParameterServer(node, slack, servers)
    a, b = server.table("a", N_ROWS, ROW_ELEMS, rule), server.table("b", N_ROWS, ROW_ELEMS, rule)
    batches = []
    if server.is_worker:
        whole, own, part = keys_of(node.rank)
        batches = [server.batch(b, whole), server.batch(a, own), server.batch(a, part)]
    server.start({"a": initial(), "b": initial()} if node.rank == 0 else None)
    return SimpleNamespace(server=server, a=a, b=b, batches=batches)


@pytest.mark.parametrize("slack", [0, 1, math.inf])
@pytest.mark.parametrize("servers", [0, 1])
def test_every_update_is_added_once(node, slack, servers):
    if servers >= node.n_ranks:
        pytest.skip("needs more ranks")
    made = build(node, slack, servers=servers)
    for clock in range(N_CLOCKS if made.server.is_worker else 0):
        for number, batch in enumerate(made.batches):
            batch.read()
            batch.post_read()
            batch.pre_update()[:] = payload(node.rank, clock, number, batch.shape, whole=True)
            batch.update()
        made.server.clock()
    made.server.close()
    a, b = initial(), initial()
    for worker in range(made.server.n_workers):
        for clock in range(N_CLOCKS):
            for number, keys in enumerate(keys_of(worker)):
                table = a if number else b
                table[np.asarray(keys)] += payload(worker, clock, number, (len(keys), ROW_ELEMS), whole=True)
    np.testing.assert_array_equal(made.server.values(made.a), a)
    np.testing.assert_array_equal(made.server.values(made.b), b)


@pytest.mark.parametrize("rule", [None, Momentum()])
def test_slack_0_reads_are_the_bits_of_the_ranks_in_order(node, rule):
    """A batch of all workers' same rows makes one step of their sum; others make a step each, in order."""
    made = build(node, 0, rule)
    a, b, h_a, h_b = initial(), initial(), np.zeros_like(initial()), np.zeros_like(initial())
    for clock in range(N_CLOCKS):
        rate = 0.5 / (clock + 1)
        for number, batch in enumerate(made.batches):
            seen = batch.read()
            assert not seen.flags.writeable
            np.testing.assert_array_equal(seen, (a if number else b)[np.asarray(keys_of(node.rank)[number])])
            batch.post_read()
            batch.pre_update()[:] = payload(node.rank, clock, number, batch.shape)
            batch.update(rate)
        made.server.clock()
        updates = [payload(worker, clock, 0, b.shape) for worker in range(node.n_ranks)]
        step(rule, b, updates, h_b, np.float32(rate))
        for number in (1, 2):
            for worker in range(node.n_ranks):
                keys = np.asarray(keys_of(worker)[number])
                rows, history = a[keys], h_a[keys]
                step(rule, rows, [payload(worker, clock, number, rows.shape)], history, np.float32(rate))
                a[keys], h_a[keys] = rows, history
    made.server.close()
    np.testing.assert_array_equal(made.server.values(made.a), a)
    np.testing.assert_array_equal(made.server.values(made.b), b)
    assert made.server.staleness == [0] * (3 * N_CLOCKS)


def step(rule, values, updates, history, rate):
    """As the rules do, in float32, with sums in the order given."""
    if rule is None:
        for update in updates:
            values += update
        return
    total = updates[0].copy()
    for update in updates[1:]:
        total += update
    history[:] = np.float32(0.5) * history + rate * total
    values -= history


def test_a_worker_that_leaves_is_waited_for_no_more(node):
    made = build(node, 0)
    whole = made.batches[0]
    for _ in range(1 + node.rank):
        whole.read()
        whole.post_read()
        whole.pre_update()[:] = 1
        whole.update()
        made.server.clock()
    made.server.close()
    n_updates = sum(1 + worker for worker in range(node.n_ranks))
    np.testing.assert_array_equal(made.server.values(made.b), initial() + n_updates)


def test_a_worker_is_no_further_ahead_than_the_slack(node, last):
    made = build(node, 2)
    if last:
        node.barrier()  # the others are two iterations ahead by now, and no more
    for clock in range(2):
        made.batches[0].read()
        made.batches[0].post_read()
        made.server.clock()
        assert made.server.staleness[-1] <= clock
    if not last:
        node.barrier()
    made.batches[0].read()  # waits for the last worker's first clock where it has not come yet
    made.batches[0].post_read()
    made.server.clock()
    made.server.close()
    assert max(made.server.staleness) <= 2


def test_mistakes_are_the_same_on_all_ranks(node):
    for slack, servers, words in ((-1, 0, "slack must be"), (1.5, 0, "slack must be"), (math.nan, 0, "slack must be"),
                                  (0, node.n_ranks, "servers must be"), (0, -1, "servers must be")):
        with pytest.raises(CommError, match=words) as caught:
            ParameterServer(node, slack, servers)
        assert caught.value.everywhere
    server = ParameterServer(node)
    server.table("t", 3, 4)
    with pytest.raises(CommError, match=r"values of table 't': expected 12 elements, got 9"):
        server.start({"t": np.ones(9)})


def test_ranks_that_differ_are_told_so(node, last):
    for differs in ("rows", "slack", "batches"):
        server = ParameterServer(node, 1 if differs == "slack" and last else 0)
        table = server.table("t", 4 if differs == "rows" and last else 3, 2)
        for _ in range(2 if differs == "batches" and last else 1):
            server.batch(table, [1])
        with pytest.raises(CommError, match="differ") as caught:
            server.start()
        assert caught.value.everywhere
    node.barrier()
