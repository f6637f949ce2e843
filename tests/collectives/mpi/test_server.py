"""The parameter server on every rank: values against numpy, in the order that slack 0 promises; what it refuses."""

import math
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.server import ParameterServer
from scaffe.collectives.server.workers import transfer_threads

N_ROWS, ROW_ELEMS, N_CLOCKS = 37, 13, 3


class Momentum:
    """h <- 0.5 h + rate * u;  v <- v - h, and where the interval lies is checked by what lies there."""

    n_histories = 1

    def step(self, values, update, histories, first, settings):
        histories[0][:] = 0.5 * histories[0] + np.float32(settings[0]) * update
        values -= histories[0]


class Count:
    """h <- h + 1 for every step, whatever the update; takes no sum for several workers' updates."""

    n_histories, merges = 1, False

    def step(self, values, update, histories, first, settings):
        histories[0] += 1


NODES = {"as they are": None, "one each": range, "two each": lambda n: [r // 2 for r in range(n)],
         "in turn": lambda n: [r % 2 for r in range(n)], "uneven": lambda n: [int(r > 0) for r in range(n)]}
SOME_NODES = {4: ("two each", "in turn"), 5: ("uneven",)}
"""Of more than three ranks, which take long; "two each" of yet more."""
_made = {}


@pytest.fixture(params=NODES)
def ranks(request, communicator):
    """All ranks, on the nodes that they have or on emulated ones."""
    if NODES[request.param] is None:
        return communicator
    if communicator.n_ranks > 3 and request.param not in SOME_NODES.get(communicator.n_ranks, ("two each",)):
        pytest.skip("many ranks take long, and some cases of them will do")
    nodes = tuple(NODES[request.param](communicator.n_ranks))
    if len(set(nodes)) < 2 or nodes in [other for name, other in _made if name != request.param]:
        pytest.skip("the same nodes as another case")
    if (request.param, nodes) not in _made:
        _made[request.param, nodes] = Communicator.world(deadline=120, node_of_rank=nodes)
    return _made[request.param, nodes]


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


FOLDERS = IN_MEMORY, IN_FILES = "", tempfile.gettempdir()
"""Where tables lie. Each case has one of the two."""


def build(ranks, slack, rule=None, servers=0, folder=""):
    """A server with tables "a" (batches 1 and 2, which share rows) and "b" (batch 0)."""
    server = ParameterServer(ranks, slack, servers, keeps_copies=bool(slack) or bool(servers), folder=folder)
    a, b = server.table("a", N_ROWS, ROW_ELEMS, rule), server.table("b", N_ROWS, ROW_ELEMS, rule)
    batches = []
    if server.is_worker:
        whole, own, part = keys_of(ranks.rank)
        batches = [server.batch(b, whole), server.batch(a, own), server.batch(a, part)]
    server.start({"a": initial(), "b": initial()} if ranks.rank == 0 else None)
    return SimpleNamespace(server=server, a=a, b=b, batches=batches)


@pytest.mark.parametrize(("slack", "servers", "folder"), [
    (0, 0, IN_MEMORY), (1, 0, IN_FILES), (math.inf, 0, IN_MEMORY),
    (0, 1, IN_FILES), (1, 1, IN_MEMORY), (math.inf, 1, IN_FILES)])
def test_every_update_is_added_once(ranks, slack, servers, folder):
    if servers >= ranks.n_ranks:
        pytest.skip("needs more ranks")
    made = build(ranks, slack, servers=servers, folder=folder)
    for clock in range(N_CLOCKS if made.server.is_worker else 0):
        for number, batch in enumerate(made.batches):
            batch.read()
            batch.post_read()
            batch.pre_update()[:] = payload(ranks.rank, clock, number, batch.shape, whole=True)
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


@pytest.mark.parametrize("slack", [2, math.inf])
def test_a_rule_that_does_not_merge_steps_once_for_every_workers_update(ranks, slack):
    made = build(ranks, slack, Count())
    for _ in range(N_CLOCKS):
        made.batches[0].pre_update()[:] = 1
        made.batches[0].update()
        made.server.clock()
    made.server.close()
    _, (steps,) = made.server.histories(made.b)
    np.testing.assert_array_equal(steps, ranks.n_ranks * N_CLOCKS)


@pytest.mark.parametrize(("rule", "folder"), [(None, IN_MEMORY), (Momentum(), IN_FILES)])
def test_slack_0_reads_are_the_bits_of_the_ranks_in_order(ranks, rule, folder):
    """A batch of all workers' same rows makes one step of their sum; others make a step each, in order.

    On several nodes the sum is that of the nodes' sums, in the order of nodes.
    """
    made = build(ranks, 0, rule, folder=folder)
    a, b, h_a, h_b = initial(), initial(), np.zeros_like(initial()), np.zeros_like(initial())
    for clock in range(N_CLOCKS):
        rate = 0.5 / (clock + 1)
        for number, batch in enumerate(made.batches):
            seen = batch.read()
            assert not seen.flags.writeable
            np.testing.assert_array_equal(seen, (a if number else b)[np.asarray(keys_of(ranks.rank)[number])])
            batch.post_read()
            batch.pre_update()[:] = payload(ranks.rank, clock, number, batch.shape)
            batch.update(rate)
        made.server.clock()
        nodes = ranks.topology.nodes
        groups = nodes if len(nodes) > 1 else [[worker] for worker in range(ranks.n_ranks)]
        updates = [total([payload(worker, clock, 0, b.shape) for worker in group]) for group in groups]
        step(rule, b, updates, h_b, np.float32(rate))
        for number in (1, 2):
            for worker in range(ranks.n_ranks):
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
    history[:] = np.float32(0.5) * history + rate * total(updates)
    values -= history


def total(updates):
    """Their sum in float32, in the order given."""
    found = updates[0].copy()
    for update in updates[1:]:
        found += update
    return found


@pytest.mark.parametrize(("slack", "folder"), [(0, IN_FILES), (2, IN_MEMORY)])
def test_rows_of_many_chunks_whole_and_out_of_order(ranks, slack, folder):
    """Sums of whole numbers; the last rank of some node holds all shards where there are three ranks."""
    server = ParameterServer(ranks, slack, servers=int(ranks.n_ranks > 2), placement="spread",
                             folder=folder)
    table = server.table("t", 7, 30_001, dtype="float64")
    keys = [range(7), [5, 0, 3], [6 - ranks.rank % 7]]
    batches = [server.batch(table, own) for own in keys] if server.is_worker else []
    server.start()
    for clock in range(3 if batches else 0):
        for number, batch in enumerate(batches):
            batch.pre_update()[:] = np.arange(batch.shape[0])[:, None] + 10 * number + clock + np.arange(30_001) % 5
            batch.update()
        server.clock()
        mine = expected([ranks.rank], clock + 1)[np.asarray(keys[1])]
        assert (batches[1].read() >= mine).all()
        batches[1].post_read()
    server.close()
    workers = [rank for rank, works in enumerate(ranks.allgather_objects(server.is_worker)) if works]
    np.testing.assert_array_equal(server.values(table), expected(workers, 3))


def expected(workers, n_clocks):
    """What the workers' updates of some clocks add up to in the test above."""
    total = np.zeros((7, 30_001))
    for worker in workers:
        for number, own in enumerate([range(7), [5, 0, 3], [6 - worker % 7]]):
            for place, key in enumerate(own):
                total[key] += n_clocks * (place + 10 * number + np.arange(30_001) % 5) + sum(range(n_clocks))
    return total


def test_a_worker_that_leaves_is_waited_for_no_more(ranks):
    made = build(ranks, 0)
    whole = made.batches[0]
    for _ in range(1 + ranks.rank):
        whole.read()
        whole.post_read()
        whole.pre_update()[:] = 1
        whole.update()
        made.server.clock()
    made.server.close()
    n_updates = sum(1 + worker for worker in range(ranks.n_ranks))
    np.testing.assert_array_equal(made.server.values(made.b), initial() + n_updates)


def test_a_worker_is_no_further_ahead_than_the_slack(ranks, last):
    made = build(ranks, 2)
    if last:
        ranks.barrier()  # the others are two iterations ahead by now, and no more
    for clock in range(2):
        made.batches[0].read()
        made.batches[0].post_read()
        made.server.clock()
        assert made.server.staleness[-1] <= clock
    if not last:
        ranks.barrier()
    made.batches[0].read()  # waits for the last worker's first clock where it has not come yet
    made.batches[0].post_read()
    made.server.clock()
    made.server.close()
    assert max(made.server.staleness) <= 2


def test_mistakes_are_the_same_on_all_ranks(communicator):
    for slack, servers, words in ((-1, 0, "slack must be"), (1.5, 0, "slack must be"), (math.nan, 0, "slack must be"),
                                  (0, communicator.n_ranks, "servers must be"), (0, -1, "servers must be")):
        with pytest.raises(CommError, match=words) as caught:
            ParameterServer(communicator, slack, servers)
        assert caught.value.everywhere
    server = ParameterServer(communicator)
    server.table("t", 3, 4)
    with pytest.raises(CommError, match=r"values of table 't': expected 12 elements, got 9"):
        server.start({"t": np.ones(9)})


def test_ranks_that_differ_are_told_so(communicator, last):
    for differs in ("rows", "slack", "batches", "folders"):
        server = ParameterServer(communicator, 1 if differs == "slack" and last else 0,
                                 folder=FOLDERS[differs == "folders" and last])
        table = server.table("t", 4 if differs == "rows" and last else 3, 2)
        for _ in range(2 if differs == "batches" and last else 1):
            server.batch(table, [1])
        with pytest.raises(CommError, match="differ") as caught:
            server.start()
        assert caught.value.everywhere
    communicator.barrier()


@pytest.mark.parametrize(("slack", "order"), [(0, -1), (1, 1), (math.inf, -1)])
def test_rows_gathered_by_a_thread_are_as_new_as_the_slack_promises(ranks, slack, order, monkeypatch):
    """Each worker adds 1 to every row in every iteration: what is read says how many iterations it holds."""
    monkeypatch.setattr(transfer_threads, "AHEAD_BYTES", 0)
    server = ParameterServer(ranks, slack)
    table = server.table("t", N_ROWS, ROW_ELEMS)
    batch = server.batch(table, range(N_ROWS)[::order])
    server.start()
    for clock in range(N_CLOCKS):
        rows = batch.read().copy()
        batch.post_read()
        least = ranks.n_ranks * max(clock - slack, 0)  # all workers' iterations before
        own = min(clock, clock - max(clock - slack, 0))
        assert rows.min() >= least + own
        assert not slack or rows.max() <= ranks.n_ranks * N_CLOCKS
        assert slack or (rows == least).all()
        batch.pre_update()[...] = 1
        batch.update()
        server.clock()
    server.close()
    assert (server.values(table) == ranks.n_ranks * N_CLOCKS).all()
