"""What a call promises of streams, and that these tests see it when any one of the orders behind it is missing."""

import time

import numpy as np
import pytest
import reference
from conftest import IS_REAL

from scaffe.collectives.cuda.device import Point
from scaffe.collectives.cuda.ipc.signals import EventSignals, HostSignals
from scaffe.collectives.cuda.messages.staging import SendBuffer
from scaffe.collectives.cuda.streams import Streams
from scaffe.collectives.request import Request
from scaffe.collectives.shared.node import NodeGroup

KINDS = ("ipc", "cards", "flags", "staged", "aware")
N_ELEMS = 2003
LATE_SECONDS = 5e-3
only_pretend = pytest.mark.skipif(IS_REAL, reason="looks into the pretend device")


def algorithm(communicator, kind):
    if kind in ("ipc", "cards", "flags"):
        return "M" if communicator.topology.n_nodes == 1 else "MC"
    return "C"


def round_trip(communicator, cp, kind, collective, shift):
    """Whether a call gives the right values to a stream that follows it, when another stream writes them late."""
    writer, reader = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    rows = reference.inputs(communicator.n_ranks, N_ELEMS, "float32", "sum") + shift
    array = communicator.alloc(N_ELEMS, np.float32, "device")
    communicator.barrier()
    time.sleep(LATE_SECONDS * (communicator.rank == shift % communicator.n_ranks))  # one rank comes late
    with writer:
        array[...] = cp.asarray(rows[communicator.rank])
        after = writer.record()
    how = {"algorithm": algorithm(communicator, kind), "chunk_bytes": 1024}
    getattr(communicator, f"i{collective}")(array, after=after, **how).wait(60, reader)
    with reader:
        got = array.copy().get(reader)
    where, right = reference.expected(collective, communicator.rank, rows, "sum", 0)
    cp.cuda.Device().synchronize()
    communicator.barrier()
    return np.array_equal(got[where], right)


def all_right(communicator, cp, kind):
    """Whether reductions and broadcasts, several in a row, were right on every rank."""
    mine = [round_trip(communicator, cp, kind, collective, shift)
            for shift in range(3) for collective in ("reduce", "bcast", "allreduce")]
    return all(all(rights) for rights in communicator.allgather_objects(mine))


@pytest.mark.parametrize(("communicator", "kind"), [(kind, kind) for kind in KINDS], indirect=["communicator"])
def test_streams_follow_calls_and_calls_follow_events(communicator, cp, kind):
    assert all_right(communicator, cp, kind)


def nothing(*arguments):
    """In place of an order."""


def at_once(*arguments):
    """In place of a condition."""
    return True


def wait_without_order(self, timeout=None, stream=None):
    self._done.wait(timeout)


def begin_without_order(self, after):
    begin(self, None)


def hold_on_other_streams(self, stream=None):
    """Copies to the host do not follow what makes their values."""
    if not hasattr(stream, "is_for_copies"):
        hold(self, stream)


begin, hold = Streams.begin, Point.hold
MUTATIONS = [
    *((kind, Streams, "begin", begin_without_order) for kind in KINDS),
    *((kind, Request, "wait", wait_without_order) for kind in ("ipc", "staged", "aware")),
    *((kind, EventSignals, "follow", nothing) for kind in ("ipc", "cards")),
    *((kind, NodeGroup, "meet", nothing) for kind in ("ipc", "cards")),
    ("ipc", EventSignals, "announce", nothing),
    ("flags", HostSignals, "announce", nothing), ("flags", NodeGroup, "meet", nothing),
    ("aware", Point, "is_reached", at_once),
    ("staged", Point, "is_reached", at_once), ("staged", Point, "hold", hold_on_other_streams),
]


@only_pretend
@pytest.mark.parametrize(("communicator", "kind", "owner", "name", "mutant"),
                         [(kind, kind, *rest) for kind, *rest in MUTATIONS], indirect=["communicator"])
def test_a_missing_order_gives_wrong_results(communicator, cp, kind, owner, name, mutant, monkeypatch):
    if communicator.n_ranks not in (2, 3) or communicator.topology.n_nodes > 1:
        pytest.skip("2 and 3 ranks on one node tell")
    for backend in (engine.backends["device"] for engine, _, _ in communicator._ranks._engines):
        backend.streams.copy.is_for_copies = True
    monkeypatch.setattr(owner, name, mutant)
    assert not all_right(communicator, cp, kind)
    monkeypatch.undo()
    cp.cuda.Device().synchronize()
    communicator.barrier()


@pytest.mark.parametrize(("communicator", "kind"), [(kind, kind) for kind in ("ipc", "staged", "aware")],
                         indirect=["communicator"])
def test_values_for_out_follow_the_event_too(communicator, cp, kind):
    writer, reader = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    rows = reference.inputs(communicator.n_ranks, 700, "float32", "sum")
    given, out = cp.zeros(700, np.float32), communicator.alloc(700, memory="device")
    cp.cuda.Device().synchronize()
    with writer:
        given[...] = cp.asarray(rows[communicator.rank])
        after = writer.record()
    communicator.iallreduce(given, algorithm=algorithm(communicator, kind), out=out, after=after).wait(60, reader)
    assert np.array_equal(out.get(reader), rows.sum(0))


@only_pretend
@pytest.mark.parametrize(("communicator", "kind"), [(kind, kind) for kind in ("ipc", "staged", "aware")],
                         indirect=["communicator"])
@pytest.mark.parametrize("form", ["", "i"])
def test_the_host_waits_for_no_device_and_the_device_for_one_event(communicator, cp, kind, form, monkeypatch):
    from tests import pretend

    monkeypatch.setattr(pretend.settings, "waits", [])
    compute = cp.cuda.Stream(non_blocking=True)
    array, later = communicator.alloc(500, memory="device"), []
    pretend.settings.waits.clear()
    with compute:
        array += 1
        after = compute.record()
        if form:
            compute.launch_host_func(later.append, "backward goes on")
        how = {"algorithm": algorithm(communicator, kind), "chunk_bytes": 256}
        request = getattr(communicator, f"{form}allreduce")(array, **(how | ({"after": after} if form else {})))
        if request is not None:
            request.wait(60, cp.cuda.Stream(non_blocking=True))
    assert pretend.settings.waits == []
    assert later == []
    compute.synchronize()
    assert later == (["backward goes on"] if form else [])
    communicator.barrier()


@pytest.mark.parametrize("communicator", ["staged", "aware"], indirect=True)
@pytest.mark.parametrize(("collective", "name"), [("allgather", "R"), ("allgather", "D"), ("allreduce", "H"),
                                                  ("allreduce", "R"), ("bcast", "C"), ("reduce_scatter", "P")])
def test_long_messages_wait_for_their_receiver_and_never_for_each_other(communicator, cp, collective, name):
    n_elems = 100_003  # chunks beyond what MPI sends before its receiver is there, more of them than pinned buffers
    rows = reference.inputs(communicator.n_ranks, n_elems, "float32", "sum")
    array = cp.asarray(rows[communicator.rank])
    getattr(communicator, collective)(array, algorithm=name, chunk_bytes=16384)
    where, right = reference.expected(collective, communicator.rank, rows, "sum", 0)
    assert np.array_equal(array.get()[where], right)


@pytest.mark.parametrize("communicator", ["ipc", "staged"], indirect=True)
def test_many_under_way_while_the_caller_makes_blocking_calls(communicator, cp):
    arrays = [cp.full(700 + n, communicator.rank + n, np.float32) for n in range(8)]
    requests = [communicator.ibcast(array, root=n % communicator.n_ranks, chunk_bytes=512)
                for n, array in enumerate(arrays)]
    total = cp.ones(500, np.float32)
    communicator.allreduce(total)
    assert (total.get() == communicator.n_ranks).all()
    for n, (request, array) in reversed(list(enumerate(zip(requests, arrays, strict=True)))):
        request.wait(120)
        assert (array.get() == n % communicator.n_ranks + n).all()


@pytest.mark.parametrize("communicator", ["ipc", "staged"], indirect=True)
def test_the_stream_that_was_chosen_stays_chosen(communicator, cp):
    """Without `with`, as CuPy's `use()` does it."""
    before, chosen = cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True)
    array = cp.ones(1009, np.float32)
    before.synchronize()
    chosen.use()
    try:
        communicator.allreduce(array)
        communicator.iallreduce(array).wait(60)
        assert cp.cuda.get_current_stream().ptr == chosen.ptr
    finally:
        before.use()
    assert (array.get(chosen) == communicator.n_ranks**2).all()


def test_a_pinned_buffer_is_free_when_its_message_has_left():
    class Left:
        def __init__(self):
            self.has_left = False

        def Test(self):
            return self.has_left

    slot, message = SendBuffer(None), Left()
    assert slot.is_free()
    slot.take(message)
    message.has_left = True  # from the time before: it has yet to start
    assert not slot.is_free()
    slot.started()
    assert slot.is_free()
