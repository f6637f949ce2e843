"""Batches with buffers in device memory, on the pretend device: its streams work as late as CUDA allows."""

import numpy as np
import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.cuda.device import Point
from scaffe.collectives.server import ParameterServer
from scaffe.collectives.server.workers.buffers import DeviceRows, DeviceUpdate
from tests import pretend

N_ROWS, ROW_ELEMS, N_CLOCKS = 23, 7, 5
KEYS = {"slice": slice(3, 20), "ascending": [0, 4, 9, 10, 17],
        "scattered": pytest.param([9, 0, 17, 4], marks=pretend.needs_compiler)}


def train(cp, keys, slack=0, dtype="float32"):
    """What a worker read in each iteration, and the table at the end; it adds what it read, halved, and one.

    It computes on streams of its own that never wait for one another but by what the server promises.
    """
    server = ParameterServer(Communicator.single(), slack)
    table = server.table("t", N_ROWS, ROW_ELEMS, dtype=dtype)
    batch = server.batch(table, keys, memory="device")
    server.start({"t": initial(dtype)})
    seen = []
    with pretend.deferring(), cp.cuda.Stream(non_blocking=True):
        for _ in range(N_CLOCKS):
            values = batch.read()
            change = values * 0.5 + 1
            seen.append(values.copy())
            batch.post_read()
            batch.pre_update()[...] = change
            batch.update()
            server.clock()
        server.close()
        seen = [values.get() for values in seen]
    return seen, server.values(table)


def initial(dtype):
    return np.arange(N_ROWS * ROW_ELEMS, dtype=dtype).reshape(N_ROWS, ROW_ELEMS)


def expected(keys, dtype="float32"):
    table, seen = initial(dtype), []
    for _ in range(N_CLOCKS):
        seen.append(table[keys].copy())
        table[keys] += seen[-1] * 0.5 + 1
    return seen, table


def is_right(cp, keys, **how):
    found, right = train(cp, keys, **how), expected(keys, how.get("dtype", "float32"))
    return all(map(np.array_equal, found[0], right[0])) and np.array_equal(found[1], right[1])


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize(("slack", "dtype"), [(0, "float32"), (0, "float64"), (1, "float32")])
def test_values_follow_streams(cp, keys, slack, dtype):
    assert is_right(cp, keys, slack=slack, dtype=dtype)


def test_reads_that_do_not_follow_the_copy_to_the_device_are_found(cp, monkeypatch):
    monkeypatch.setattr(DeviceRows, "lend", lambda self: self.buffer)
    assert not is_right(cp, KEYS["slice"])


def test_updates_that_do_not_follow_the_worker_are_found(cp, monkeypatch):
    monkeypatch.setattr(DeviceUpdate, "give_back", lambda self: self._take(Point.of(self._streams.event())))
    assert not is_right(cp, KEYS["slice"])


def test_updates_that_are_fetched_too_early_are_found(cp, monkeypatch):
    monkeypatch.setattr(DeviceUpdate, "fetch", lambda self: np.copyto(self._update, self._pinned))
    assert not is_right(cp, KEYS["ascending"])


def read_late(cp, keys):
    """Whether a stream that works late on what was read sees it, while updates of another stream go on."""
    server = ParameterServer(Communicator.single())
    batch = server.batch(server.table("t", N_ROWS, ROW_ELEMS), keys, memory="device")
    server.start()
    with pretend.deferring():
        late, early = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
        seen = []
        for _ in range(N_CLOCKS):
            with late:
                seen.append(batch.read().copy())
                batch.post_read()
            with early:
                batch.pre_update()[...] = 1
                batch.update()
            server.clock()
        server.close()
        late.synchronize()
        return [(values.get() == clock).all() for clock, values in enumerate(seen)] == [True] * N_CLOCKS


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_the_first_rows_follow_who_had_their_memory_before(cp, keys):
    with pretend.deferring(), cp.cuda.Stream(non_blocking=True):
        server = ParameterServer(Communicator.single())
        batch = server.batch(server.table("t", N_ROWS, ROW_ELEMS), keys, memory="device")
        before = [cp.zeros((len(expected(keys)[0][0]), ROW_ELEMS), "float32") for _ in range(3)]
        del before  # while the stream has not come to them
        server.start({"t": initial("float32")})
        found = batch.read().get()
        batch.post_read()
        server.close()
    assert found.tobytes() == expected(keys)[0][0].tobytes()


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_rows_stay_until_the_worker_has_used_them(cp, keys, monkeypatch):
    assert read_late(cp, keys)
    monkeypatch.setattr(DeviceRows, "give_back", lambda self: None)
    assert not read_late(cp, keys)


@pretend.needs_compiler
def test_the_host_copies_rows_in_the_tables_order(cp):
    server = ParameterServer(Communicator.single())
    batch = server.batch(server.table("t", N_ROWS, ROW_ELEMS), [5, 3, 4, 2], memory="device")
    assert batch.index.is_slice
    assert batch.positions.tolist() == [3, 1, 2, 0]


def test_the_worker_never_waits_for_the_device(cp):
    pretend.settings.waits.clear()
    server = ParameterServer(Communicator.single())
    batch = server.batch(server.table("t", N_ROWS, ROW_ELEMS), range(N_ROWS), memory="device")
    server.start()
    with pretend.deferring():
        for _ in range(2):
            batch.read(), batch.post_read()
            batch.pre_update()[...] = 1
            batch.update()
            server.clock()
        assert pretend.settings.waits == []
        server.close()
    assert (server.values(batch.index.table) == 2).all()


def test_a_virtual_iteration_gives_device_buffers_out(cp, new_threads):
    server = ParameterServer(Communicator.single())
    batch = server.batch(server.table("t", N_ROWS, ROW_ELEMS), [4, 2], memory="device")
    with server.virtual_iteration():
        assert isinstance(batch.read(), cp.ndarray)
        batch.post_read()
        assert batch.pre_update().shape == (2, ROW_ELEMS)
        batch.update()
    server.start()
    server.close()
    assert not server.values(batch.index.table).any()
    assert not (new_threads("scaffe-pusher") or new_threads("scaffe-puller"))


def test_what_fails_in_the_pusher_is_told_where_it_is_waited_for(cp, monkeypatch):
    server = ParameterServer(Communicator.single())
    batch = server.batch(server.table("t", N_ROWS, ROW_ELEMS), [4, 2], memory="device")
    server.start()
    monkeypatch.setattr(DeviceUpdate, "fetch", lambda self: 1 / 0)
    batch.pre_update()
    batch.update()
    server.clock()
    with pytest.raises(CommError, match="division by zero"):
        batch.read()


def test_memory_that_there_is_not(monkeypatch):
    pretend.install(monkeypatch, n_devices=0)
    server = ParameterServer(Communicator.single())
    table = server.table("t", 2, 2)
    with pytest.raises(CommError, match="table 't': memory must be host or device, got 'disk'"):
        server.batch(table, [0], memory="disk")
    with pytest.raises(CommError, match="device buffers need a GPU"):
        server.batch(table, [0], memory="device")
