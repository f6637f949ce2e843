"""The thread that gathers rows before they are read: who gathers what, how often, and what a read returns."""

import threading

import numpy as np
import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.server import ParameterServer
from scaffe.collectives.server.workers import transfer_threads
from scaffe.collectives.server.workers.buffers import Copy

LIMIT = 100  # seconds: far more than is ever needed


@pytest.fixture
def gathered(monkeypatch):
    """Who gathers: the threads' names, in order; an event is set after each."""
    done, gather = threading.Semaphore(0), Copy.gather
    names = []

    def noted(self):
        gather(self)
        names.append(threading.current_thread().name)
        done.release()

    monkeypatch.setattr(Copy, "gather", noted)
    names_and_done = type("Gathered", (), {"names": names, "wait": lambda self: done.acquire(timeout=LIMIT)})
    return names_and_done()


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """However little there is to gather, a thread does it."""
    monkeypatch.setattr(transfer_threads, "AHEAD_BYTES", 0)


def started(slack, keys):
    server = ParameterServer(Communicator.single(), slack)
    table = server.table("t", 9, 4)
    batches = [server.batch(table, of) for of in keys]
    server.start({"t": np.arange(36)})
    return server, batches


@pytest.mark.parametrize(("slack", "keys"), [(0, [[7, 2], [0, 5]]), (1, [range(9), [3]]),
                                             (np.inf, [range(4), range(2)])])
def test_rows_are_gathered_once_by_the_puller_before_they_are_read(gathered, slack, keys):
    server, batches = started(slack, keys)
    expected = np.arange(36, dtype=np.float32).reshape(9, 4)
    for clock in range(4):
        for batch, of in zip(batches, keys, strict=True):
            if clock:
                assert gathered.wait()
            np.testing.assert_array_equal(batch.read(), expected[list(of)])
            if not clock:
                gathered.wait()
            batch.post_read()
            batch.read(), batch.post_read()  # again in the same iteration: nothing moves
        assert len(gathered.names) == len(batches) * (clock + 1)
        batches[0].pre_update()[:] = 1
        batches[0].update()
        expected[list(keys[0])] += 1
        server.clock()
    assert gathered.names[len(batches) :] == ["scaffe-puller-0"] * len(gathered.names[len(batches) :])
    server.close()


def test_without_rows_to_copy_there_is_no_thread(gathered, new_threads):
    server, (batch,) = started(0, [range(9)])
    for _ in range(2):
        batch.read(), batch.post_read()
        server.clock()
    assert not new_threads("scaffe-puller")
    assert gathered.names == []
    server.close()


def test_little_is_gathered_once_by_the_worker_itself(gathered, monkeypatch):
    monkeypatch.setattr(transfer_threads, "AHEAD_BYTES", 1 << 20)
    server, (batch,) = started(1, [[5, 3]])
    for clock in range(3):
        for _ in range(2):
            np.testing.assert_array_equal(batch.read(), np.arange(36).reshape(9, 4)[[5, 3]])
            batch.post_read()
        assert gathered.names == ["MainThread"] * (clock + 1)
        server.clock()
    server.close()


def test_the_thread_ends_with_the_server(new_threads):
    server, _ = started(1, [range(9)])
    assert new_threads("scaffe-puller") == ["scaffe-puller-0"]
    server.close()
    assert not new_threads("scaffe-puller")


def test_what_fails_in_the_thread_is_told_where_it_is_waited_for(monkeypatch):
    server, (batch,) = started(1, [range(9)])
    batch.read(), batch.post_read()
    monkeypatch.setattr(Copy, "gather", lambda self: 1 / 0)
    server.clock()
    with pytest.raises(CommError, match="division by zero"):
        batch.read()
