"""The sequence of an iteration's calls: gathered in a virtual iteration or the first real one, and what comes of it."""

import threading

import numpy as np
import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.server import ParameterServer
from scaffe.collectives.server.protocol.client import Client
from scaffe.collectives.server.protocol.messages import Read


def declared(slack=0):
    server = ParameterServer(Communicator.single(), slack)
    shared = server.table("s", 6, 5)
    own = server.table("l", 3, 2, dtype="float64", local=True)
    return server, server.batch(shared, [4, 1]), server.batch(shared, range(2, 4)), server.local_batch(own, [0, 2])


def iteration(server, scattered, whole, own):
    whole.read(), whole.post_read()
    scattered.read()
    own.pre_update(no_fetch=True)[:] = 1
    own.update()
    own.read(), own.post_read()
    scattered.post_read()
    scattered.pre_update()[:] = 1
    scattered.update()
    own.pre_update()
    own.update(no_save=True)
    server.clock()


CALLS = [("read", "s", 1, 40, False, True), ("post_read", "s", 1, 40, False, False),
         ("read", "s", 0, 40, False, True), ("pre_update", "l", 0, 32, True, False),
         ("update", "l", 0, 32, True, True), ("read", "l", 0, 32, True, True),
         ("post_read", "l", 0, 32, True, False), ("post_read", "s", 0, 40, False, False),
         ("pre_update", "s", 0, 40, False, False), ("update", "s", 0, 40, False, True),
         ("pre_update", "l", 0, 32, True, True), ("update", "l", 0, 32, True, False),
         ("clock", "", -1, 0, False, False)]


def calls(server):
    return [(step.call, step.table, step.batch, step.n_bytes, step.is_local, step.moves) for step in server.sequence]


@pytest.mark.parametrize("is_virtual", [True, False])
def test_the_sequence_is_that_of_the_virtual_or_the_first_iteration(is_virtual):
    server, *batches = declared()
    if is_virtual:
        with server.virtual_iteration():
            iteration(server, *batches)
        assert calls(server) == CALLS
        assert {step.seconds for step in server.sequence} == {0}
    server.start()
    assert bool(server.sequence) == is_virtual
    iteration(server, *batches)
    assert calls(server) == CALLS
    if not is_virtual:
        seconds = [step.seconds for step in server.sequence]
        assert seconds == sorted(seconds)
        assert seconds[-1] > 0
    batches[0].read(), batches[0].post_read()
    server.clock()
    assert calls(server) == CALLS
    server.close()


def test_a_virtual_iteration_does_nothing():
    server, scattered, whole, own = declared()
    with server.virtual_iteration():
        rows = whole.read()
        assert rows.shape == (2, 5)
        assert not rows.flags.writeable
        whole.post_read()
        for batch in (whole, own):
            batch.pre_update()[:] = 7
            batch.update()
    server.start()
    assert not server.values(scattered.index.table).any()
    assert not server.values(own.index.table).any()
    assert server.staleness == []
    server.close()
    assert not server.values(whole.index.table).any()


def test_a_virtual_iteration_refuses_what_a_real_one_does():
    server, scattered, _, own = declared()
    with server.virtual_iteration():
        for batch, name in ((scattered, "batch 0 of table 's'"), (own, "local batch 0 of table 'l'")):
            batch.read()
            with pytest.raises(CommError, match=f"reads {name} again before post_read"):
                batch.read()
            batch.post_read()
    with pytest.raises(CommError, match="a batch of table 's' is used before start"):
        scattered.read()
    with pytest.raises(CommError, match="ends an iteration while it reads"), server.virtual_iteration():
        scattered.read()
        server.clock()
    server.start()
    with pytest.raises(CommError, match="has its virtual iteration after start"):
        server.virtual_iteration()
    server.close()


def test_what_is_read_is_asked_for_ahead_in_the_order_of_the_reads():
    client = Client(0, [(0,), (1,), (0, 1)], 2, slack=0)
    assert client.prefetch([2, 0]) == [(0, Read(0, 2, 0, 0)), (1, Read(0, 2, 0, 0)), (0, Read(0, 0, 0, 0))]
    assert client.ask(2) == []
    assert client.ask(1) == [(1, Read(0, 1, 0, 0))]


def test_start_asks_for_what_the_virtual_iteration_read():
    server, *batches = declared()
    with server.virtual_iteration():
        iteration(server, *batches)
    server.start()
    client = server._mine.working().client
    assert client.ask(0) == client.ask(1) == []
    iteration(server, *batches)
    server.close()


def test_a_known_operation_allocates_no_arrays(monkeypatch):
    """Buffers are made at the start; what is made afterwards is messages, a line of seven numbers each."""
    server, *batches = declared(slack=1)
    server.start()
    iteration(server, *batches)
    made, here = [], threading.get_ident()
    for name in ("empty", "zeros", "array", "concatenate", "append", "copy"):
        make = getattr(np, name)

        def noted(*given, make=make, **how):
            array = make(*given, **how)
            made.extend([array.shape] * (threading.get_ident() == here and array.nbytes > 64))
            return array

        monkeypatch.setattr(np, name, noted)
    iteration(server, *batches)
    assert made == []
    server.close()


def test_a_known_iteration_sends_a_message_a_call_and_agrees_on_nothing(monkeypatch):
    """To the one shard: an update, a clock, and a question for each batch read; for local rows nothing."""
    server, *batches = declared()
    server.start()
    for _ in range(2):
        iteration(server, *batches)
    for name in ("agree", "allgather_objects", "bcast_object", "barrier", "allreduce"):
        monkeypatch.setattr(Communicator, name, None)
    sent, worker = [], server._mine.working()
    deliver = worker._outbox._send
    monkeypatch.setattr(worker._outbox, "_send", lambda given, *more: (sent.extend(given), deliver(given, *more)))
    iteration(server, *batches)
    assert [type(message).__name__ for _, message in sent] == ["Update", "Clock", "Read", "Read"]
    assert [message.batch for _, message in sent[2:]] == [1, 0]
    monkeypatch.undo()
    server.close()
